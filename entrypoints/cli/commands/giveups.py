"""``tileferry giveups``: tiles that the provider would not take, for a human to decide on."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tileferry.adapters.postgres import reopening_sql, schema_status
from tileferry.application.giveups import Giveup
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId, VotingStatus
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.options.times import in_utc
from tileferry.entrypoints.cli.output import (
    facts,
    in_bytes,
    notes,
    opened,
    option,
    people,
    print_json,
)
from tileferry.entrypoints.container import Container

LIST_SCHEMA = "tileferry.giveups.list.v1"
SHOW_SCHEMA = "tileferry.giveups.show.v1"
app = typer.Typer(
    help="Tiles whose upload was given up: a human decides about them.",
    no_args_is_help=True,
)


@app.command("list", epilog="Example: tileferry giveups list --flight F1")
def list_command(
    *,
    flight: Annotated[str | None, typer.Option("--flight", help="Only of this flight.")] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List the tiles that wait for a human."""
    with opened(config) as container:
        schema_status(container.database()).check()
        found = list(_giveups(container, flight))
    if json:
        print_json(LIST_SCHEMA, {"giveups": [_json_of(giveup) for giveup in found]})
        return
    if not found:
        people.print("No tile is given up.")
        return
    table = Table(box=box.SIMPLE)
    table.add_column("tile", no_wrap=True)  # in one piece, to be copied
    for title in ("attempts", "given up", "what the provider said last"):
        table.add_column(title, overflow="fold")
    for giveup in found:
        table.add_row(
            Text(str(giveup.tile.tile_id)),
            str(giveup.tile.upload_attempts),
            _moment(giveup),
            Text(giveup.reason or "not recorded any more"),
        )
    people.print(table)
    notes.print("To look at one: tileferry giveups show TILE")


@app.command("show", epilog="Example: tileferry giveups show flight-f1/16/39000/22000")
def show_command(
    *,
    tile: Annotated[str, typer.Argument(metavar="TILE", help="The tile: source/z/x/y.")],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show one tile: why it was given up, its picture, and how a human gives it another try."""
    with option("TILE"):
        tile_id = TileId.parse(tile)
    with opened(config) as container:
        schema_status(container.database()).check()
        known = container.metadata_store().get_metadata(tile_id)
        if known is None or known.voting_status is not VotingStatus.UPLOAD_GIVEUP:
            raise InvalidValueError(
                field="TILE",
                value=tile,
                problem="is not given up" if known else "is not in the cache",
                remedy="see tileferry giveups list",
            )
        (giveup,) = container.giveup_reader().giveups([known])
        picture = container.pictures().extract(tile_id, container.tile_store().read_tile(tile_id))
    if json:
        print_json(SHOW_SCHEMA, {**_json_of(giveup), "picture": str(picture)})
        return
    rows = {
        "flight": known.flight_id,
        "attempts": known.upload_attempts,
        "given up": _moment(giveup),
        "the provider said": giveup.reason or "not recorded any more",
        "captured": f"{in_utc(known.produced_at)} UTC",
        "size": in_bytes(known.blob.length),
        "sha256": known.blob.sha256,
        "picture": picture,
    }
    people.print(facts(f"Tile {tile_id}, given up", rows))
    notes.print("If you have mended the cause, this gives it one more try (in psql):")
    notes.print(f"  {reopening_sql(tile_id)}")


def _giveups(container: Container, flight: str | None) -> Any:
    return container.giveup_reader().giveups(container.metadata_store().given_up(flight))


def _moment(giveup: Giveup) -> str:
    at_s = giveup.given_up_at_s
    return "" if at_s is None else f"{in_utc(datetime.fromtimestamp(at_s, UTC))} UTC"


def _json_of(giveup: Giveup) -> dict[str, Any]:
    tile = giveup.tile
    return {
        "tile_id": str(tile.tile_id),
        "flight_id": tile.flight_id,
        "attempts": tile.upload_attempts,
        "last_rejection_reason": giveup.reason,
        "given_up_at_s": giveup.given_up_at_s,
        "captured_at": tile.produced_at.isoformat(),
        "bytes": tile.blob.length,
        "sha256": tile.blob.sha256,
        "reopening_sql": reopening_sql(tile.tile_id),
    }
