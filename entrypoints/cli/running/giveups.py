"""Tiles that the provider would not take, listed and shown for a human to decide on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tileferry.adapters.postgres import reopening_sql
from tileferry.application.transfers.giveups import Giveup
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import in_bytes, in_utc
from tileferry.domain.tiles import TileId, TileMetadata, VotingStatus
from tileferry.entrypoints.cli.output import (
    facts,
    notes,
    opened_books,
    option,
    people,
    print_json,
)
from tileferry.entrypoints.cli.views.records import moment_json
from tileferry.entrypoints.container import Container

LIST_SCHEMA = "tileferry.giveups.list.v1"
SHOW_SCHEMA = "tileferry.giveups.show.v1"


# list


def listed(config: Path | None, *, flight: str | None, json: bool) -> None:
    """List all that wait, or those of a flight."""
    with opened_books(config) as container:
        tiles = container.metadata_store().given_up(flight)
        found = list(container.giveup_reader().giveups(tiles))
    if json:
        print_json(LIST_SCHEMA, {"giveups": [_json_of(giveup) for giveup in found]})
    elif not found:
        people.print("No tile is given up.")
    else:
        people.print(_table(found))
        notes.print("To look at one: tileferry giveups show TILE")


def _table(found: list[Giveup]) -> Table:
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
    return table


# show


def shown(config: Path | None, *, tile: str, json: bool) -> None:
    """Show one tile and take its picture out of the cache, to be looked at."""
    with option("TILE"):
        tile_id = TileId.parse(tile)
    with opened_books(config) as container:
        known = _given_up(container, tile_id)
        (giveup,) = container.giveup_reader().giveups([known])
        picture = container.pictures().extract(tile_id, container.tile_store().read_tile(tile_id))
    if json:
        print_json(SHOW_SCHEMA, {**_json_of(giveup), "picture": str(picture)})
        return
    people.print(facts(f"Tile {tile_id}, given up", _rows(giveup, picture)))
    notes.print("If you have mended the cause, this gives it one more try (in psql):")
    notes.print(f"  {reopening_sql(tile_id)}")


def _given_up(container: Container, tile_id: TileId) -> TileMetadata:
    known = container.metadata_store().get_metadata(tile_id)
    if known is None or known.voting_status is not VotingStatus.UPLOAD_GIVEUP:
        raise InvalidValueError(
            field="TILE",
            value=str(tile_id),
            problem="is not given up" if known else "is not in the cache",
            remedy="see tileferry giveups list",
        )
    return known


def _rows(giveup: Giveup, picture: Path) -> dict[str, object]:
    tile = giveup.tile
    return {
        "flight": tile.flight_id,
        "attempts": tile.upload_attempts,
        "given up": _moment(giveup),
        "the provider said": giveup.reason or "not recorded any more",
        "captured": in_utc(tile.produced_at),
        "size": in_bytes(tile.blob.length),
        "sha256": tile.blob.sha256,
        "picture": picture,
    }


# both


def _given_up_at(giveup: Giveup) -> datetime | None:
    at_s = giveup.given_up_at_s
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)


def _moment(giveup: Giveup) -> str:
    at = _given_up_at(giveup)
    return "" if at is None else in_utc(at)


def _json_of(giveup: Giveup) -> dict[str, Any]:
    tile = giveup.tile
    return {
        "tile_id": str(tile.tile_id),
        "flight_id": tile.flight_id,
        "attempts": tile.upload_attempts,
        "last_rejection_reason": giveup.reason,
        "given_up_at": moment_json(_given_up_at(giveup)),
        "captured_at": moment_json(tile.produced_at),
        "size_bytes": tile.blob.length,
        "sha256": tile.blob.sha256,
        "reopening_sql": reopening_sql(tile.tile_id),
    }
