"""``tileferry giveups``: list the tiles that the provider keeps rejecting, for an operator to
decide.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)

if TYPE_CHECKING:
    from pathlib import PurePath

    from rich.table import Table

    from tileferry.application.upload.giveups import Giveup

app = declare_group("Review tiles whose upload was given up; print the SQL to reopen them.")
LIST_SCHEMA = "tileferry.giveups.list.v1"
SHOW_SCHEMA = "tileferry.giveups.show.v1"
REOPEN_SCHEMA = "tileferry.giveups.reopen.v1"
RUN_WITH = "tileferry db shell"


@app.command(
    "list", epilog=format_examples("tileferry giveups list", "tileferry giveups list --flight F7")
)
def list_command(
    *,
    flight: Annotated[
        str | None, typer.Option("--flight", metavar="FLIGHT", help="Only this flight.")
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List the tiles that need a decision, and why they were given up."""
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout

    with open_installation(config) as installation:
        found = list(installation.giveups.iter_giveups(flight))
    if json:
        print_json(LIST_SCHEMA, {"giveups": [_giveup_to_json(giveup) for giveup in found]})
    elif not found:
        stdout.print("No tile was given up.")
    else:
        stdout.print(_build_table(found))
        stderr.print("For details: tileferry giveups show TILE")


@app.command(
    "show", epilog=format_examples("tileferry giveups show flight-f7-d96b6ec7/16/39000/22000")
)
def show_command(
    *,
    tile: Annotated[str, typer.Argument(metavar="TILE", help="Tile id as listed: source/z/x/y.")],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show why a tile was given up, and how to retry it.

    Also extracts its image from the cache into a file, so that you can look at it.
    """
    from tileferry.domain.errors import DamagedTileError
    from tileferry.domain.tiles import TileId
    from tileferry.entrypoints.cli.output import (
        blame_option,
        build_facts_table,
        open_installation,
        print_json,
        stderr,
        stdout,
    )

    with blame_option("TILE"):
        tile_id = TileId.parse(tile)
    with open_installation(config) as installation:
        giveups = installation.giveups
        giveup = giveups.get_giveup(tile_id)
        try:
            picture = giveups.extract_image(tile_id)
        except DamagedTileError:
            picture = None
    if json:
        file = None if picture is None else str(picture)
        print_json(SHOW_SCHEMA, {**_giveup_to_json(giveup), "picture": file})
        return
    stdout.print(build_facts_table(f"Tile {tile_id}, given up", _build_rows(giveup, picture)))
    stderr.print(f"After fixing the cause, retry it once more with this SQL, in {RUN_WITH}:")
    stderr.print(f"  {giveup.reopening_sql}")
    if picture is None:
        stderr.print("Then ingest the original again with tileferry ingest, and upload.")


@app.command(
    "reopen",
    epilog=format_examples(
        'tileferry giveups reopen --flight F7 --reason "provider fixed its decoder"',
    ),
)
def reopen_command(
    *,
    tiles: Annotated[
        list[str] | None,
        typer.Argument(metavar="TILE", help="Tile ids as listed: source/z/x/y."),
    ] = None,
    flight: Annotated[
        str | None,
        typer.Option("--flight", metavar="FLIGHT", help="All given-up tiles of this flight."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; written beside the statements.")
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Print the SQL that gives given-up tiles one more attempt. Changes nothing.

    Reopening a giveup is a human decision, so no command does it: check the statements, then run
    them yourself with `tileferry db shell`.
    """
    from tileferry.domain.text import printable
    from tileferry.domain.tiles import TileId
    from tileferry.entrypoints.cli.output import (
        blame_option,
        open_installation,
        print_json,
        stderr,
    )
    from tileferry.entrypoints.cli.partition_options import get_operator_name, parse_reason

    why = parse_reason(reason)
    if bool(tiles) == (flight is not None):
        raise typer.BadParameter("name the tiles to reopen, or use --flight")
    with blame_option("TILE"):
        ids = [TileId.parse(tile) for tile in tiles or ()]
    with open_installation(config) as installation:
        giveups = installation.giveups
        found = [giveups.get_giveup(tile_id) for tile_id in ids]
        found += giveups.iter_giveups(flight) if flight is not None else ()
    statements = [giveup.reopening_sql for giveup in found]
    if json:
        print_json(
            REOPEN_SCHEMA,
            {
                "reason": why,
                "giveups": [_giveup_to_json(giveup) for giveup in found],
                "run_with": RUN_WITH,
            },
        )
        return
    if not statements:
        stderr.print(f"Flight {printable(flight or '')} has no given-up tile.")
        return
    # printable() keeps a line break in the reason from ending the comment
    comment = f"-- {printable(get_operator_name())}: {printable(why)}"
    for line in ("BEGIN;", comment, *statements, "COMMIT;"):
        typer.echo(line)
    tiles_text = "1 tile" if len(found) == 1 else f"{len(found):,} tiles"
    stderr.print(
        f"Nothing was changed. To reopen {tiles_text} in the configured database, paste the lines"
        f" into `{RUN_WITH}`, or append ` | {RUN_WITH}` to this command. Then upload again."
    )


def _build_table(found: "list[Giveup]") -> "Table":
    from rich import box
    from rich.text import Text

    from tileferry.entrypoints.cli.tables import FittingTable

    table = FittingTable(box=box.SIMPLE, drop=("given up", "attempts", "last rejection"))
    table.add_column("tile", no_wrap=True)  # unwrapped, so that it can be copied
    for title in ("attempts", "given up", "last rejection"):
        table.add_column(title, overflow="fold")
    for giveup in found:
        table.add_row(
            Text(str(giveup.tile.tile_id)),
            str(giveup.tile.upload_attempts),
            _format_giveup_time(giveup),
            Text(giveup.reason or "no longer recorded"),
        )
    return table


def _build_rows(giveup: "Giveup", picture: "PurePath | None") -> dict[str, object]:
    return {**build_giveup_facts(giveup), "picture": picture or "damaged in the cache"}


def build_giveup_facts(giveup: "Giveup") -> dict[str, object]:
    """Return the facts about a giveup, by name."""
    from tileferry.domain.text import format_bytes, format_utc

    tile = giveup.tile
    return {
        "flight": tile.flight_id,
        "attempts": tile.upload_attempts,
        "given up": _format_giveup_time(giveup),
        "rejected because": giveup.reason or "no longer recorded",
        "captured": format_utc(tile.produced_at),
        "size": format_bytes(tile.blob.length),
        "sha256": tile.blob.sha256,
    }


def _get_giveup_time(giveup: "Giveup") -> datetime | None:
    at_s = giveup.given_up_at_s
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)


def _format_giveup_time(giveup: "Giveup") -> str:
    from tileferry.domain.text import format_utc

    at = _get_giveup_time(giveup)
    return "" if at is None else format_utc(at)


def _giveup_to_json(giveup: "Giveup") -> dict[str, Any]:
    from tileferry.entrypoints.cli.formatting import time_to_json

    tile = giveup.tile
    return {
        "tile_id": str(tile.tile_id),
        "flight_id": tile.flight_id,
        "attempts": tile.upload_attempts,
        "last_rejection_reason": giveup.reason,
        "given_up_at": time_to_json(_get_giveup_time(giveup)),
        "captured_at": time_to_json(tile.produced_at),
        "size_bytes": tile.blob.length,
        "sha256": tile.blob.sha256,
        "reopening_sql": giveup.reopening_sql,
    }
