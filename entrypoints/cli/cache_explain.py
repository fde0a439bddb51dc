"""``tileferry cache explain``: show what is known about one tile."""

from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples

if TYPE_CHECKING:
    from tileferry.application.cache.tile_life import StoredVersion, TileLife, TileNeed

SCHEMA = "tileferry.cache.explain.v1"


def add_explain_command(app: typer.Typer) -> None:
    """Add the command to the cache group."""
    app.command(
        "explain",
        epilog=format_examples(
            "tileferry cache explain 14/9830/5536",
            "tileferry cache explain satellite/14/9830/5536",
        ),
    )(explain_command)


def explain_command(
    *,
    tile: Annotated[
        str, typer.Argument(metavar="TILE", help="z/x/y for all sources, or source/z/x/y.")
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Explain why a tile is in the cache or not.

    Shows the flights that need it and its verdict for each, every stored version, refusals and
    absences at the provider, and the entries of the audit log about it. The provider is not called.
    """
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stderr,
        stdout,
    )
    from tileferry.entrypoints.cli.work_lines import format_sentences, render_audit_entries

    layer, zoom, x, y = parse_tile(tile)
    with open_installation(config) as installation:
        life = installation.tile_lives.read(layer, zoom, x, y)
    if json:
        print_json(SCHEMA, _life_to_json(life))
        return
    stdout.print(f"Tile {tile}")
    stdout.print(format_sentences(describe_life(life)))
    for version in life.versions:
        stdout.print(
            build_facts_table(f"Stored as {version.tile.tile_id}", build_version_facts(version))
        )
    if life.entries:
        stdout.print("Audit log:")
        stdout.print(render_audit_entries(life.entries), soft_wrap=True)
    else:
        stderr.print("The audit log has no entries about it.")


def parse_tile(text: str) -> tuple[str, int, int, int]:
    """Return the layer and the place of ``z/x/y`` or ``source/z/x/y``."""
    from attrs import evolve

    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.tiles import TileId
    from tileferry.domain.tiles.map_layer import MERGED_LAYER

    separators = 2
    name = f"{MERGED_LAYER}/{text}" if text.count("/") == separators else text
    try:
        tile_id = TileId.parse(name)
    except InvalidValueError as error:
        problem = error.problem
        if error.field == "TileId":
            problem = "is not of the form z/x/y or source/z/x/y"
        raise evolve(error, field="TILE", value=text, problem=problem) from None
    return tile_id.source, tile_id.zoom, tile_id.x, tile_id.y


def describe_life(life: "TileLife") -> list[str]:
    """Return what is known about a tile as sentences, in the order of its life."""
    from tileferry.domain.text import format_utc

    story = [describe_need(need) for need in life.needs]
    if not life.needs:
        story.append("No flight needs this tile.")
    story += [
        f"The provider did not have {tile_id} on {format_utc(at)}."
        for tile_id, at in life.absent.items()
    ]
    story += [f"{one.tile_id}: {one.describe()}." for one in life.refusals]
    story += [_describe_version(version) for version in life.versions]
    if life.missing is not None:
        story.append(f"Not in the cache: {life.missing.detail}.")
    return story


def describe_need(need: "TileNeed") -> str:
    """Return which area needs a tile, since when, and the verdict."""
    from tileferry.domain.text import format_utc

    verdict = need.report.verdict
    why = "; ".join([*verdict.reasons, *verdict.warnings, *get_flaw_details(need)])
    return (
        f"Flight {need.flight_id} needs it from {need.item.source} for"
        f" {need.item.area.sector_class.value}, since {format_utc(need.item.added_at)}:"
        f" {verdict}{f', {why}' if why else ''}."
    )


def get_flaw_details(need: "TileNeed") -> list[str]:
    """Return the measured values behind the verdict, such as the age of the tile."""
    return [example.detail for example in need.report.examples]


def _describe_version(version: "StoredVersion") -> str:
    from tileferry.domain.text import format_bytes, format_utc

    tile = version.tile
    state = "it is intact" if version.problem is None else f"it is damaged: {version.problem}"
    return (
        f"Stored on {format_utc(tile.stored_at)} for flight {tile.flight_id},"
        f" {format_bytes(tile.blob.length)}, imagery of {format_utc(tile.produced_at)}; {state}."
    )


def build_version_facts(version: "StoredVersion") -> dict[str, object]:
    """Return the row of a stored tile, for people."""
    from tileferry.domain.text import format_bytes, format_utc
    from tileferry.domain.tiles import VotingStatus

    tile = version.tile
    facts: dict[str, object] = {
        "delivered by": version.origin,
        "imagery of": format_utc(tile.produced_at),
        "resolution": f"{tile.resolution_m_per_px:g} m/px",
        "size": format_bytes(tile.blob.length),
        "stored": f"{format_utc(tile.stored_at)}, for flight {tile.flight_id}",
        "sector": f"{tile.sector_class.value}: {tile.freshness.value}",
        "confirmed": format_utc(tile.confirmed_at),
        "last used": format_utc(tile.last_used_at),
        "bytes": "intact" if version.problem is None else f"damaged: {version.problem}",
        "sha256": tile.blob.sha256,
    }
    if tile.voting_status is not VotingStatus.TRUSTED:
        status = tile.voting_status.value.replace("_", " ")
        rejected = f", rejected {tile.upload_attempts} times" if tile.upload_attempts else ""
        facts["captured"] = f"{status}{rejected}"
    return facts


def _life_to_json(life: "TileLife") -> dict[str, object]:
    from tileferry.domain.tiles.map_layer import MERGED_LAYER
    from tileferry.entrypoints.cli.audit_entries import entry_to_json
    from tileferry.entrypoints.cli.formatting import record_to_json, time_to_json

    missing = life.missing
    return {
        "place": life.name,
        "source": None if life.layer == MERGED_LAYER else life.layer,
        "needs": [_need_to_json(need) for need in life.needs],
        "absent": [
            {"tile_id": str(tile_id), "absent_at": time_to_json(at)}
            for tile_id, at in life.absent.items()
        ],
        "refusals": [{**record_to_json(one), "tile_id": str(one.tile_id)} for one in life.refusals],
        "versions": [_version_to_json(version) for version in life.versions],
        "missing": None
        if missing is None
        else {"reason": missing.reason.value, "detail": missing.detail},
        "audit": [entry_to_json(entry) for entry in life.entries],
    }


def _need_to_json(need: "TileNeed") -> dict[str, object]:
    from tileferry.domain.tiles.shape import shape_to_geojson
    from tileferry.entrypoints.cli.formatting import bbox_to_json, time_to_json

    area, verdict = need.item.area, need.report.verdict
    return {
        "flight_id": need.flight_id,
        "source": need.item.source,
        "bbox": bbox_to_json(area.bbox),
        "shape": None if area.shape is None else shape_to_geojson(area.shape),
        "zoom_levels": list(area.zoom_levels),
        "sector_class": area.sector_class.value,
        "added_at": time_to_json(need.item.added_at),
        "verdict": str(verdict),
        "reasons": list(verdict.reasons),
        "warnings": list(verdict.warnings),
        "details": get_flaw_details(need),
    }


def _version_to_json(version: "StoredVersion") -> dict[str, object]:
    from tileferry.entrypoints.cli.formatting import time_to_json

    tile = version.tile
    return {
        "tile_id": str(tile.tile_id),
        "flight_id": tile.flight_id,
        "produced_at": time_to_json(tile.produced_at),
        "resolution_m_per_px": tile.resolution_m_per_px,
        "sector_class": tile.sector_class.value,
        "freshness": tile.freshness.value,
        "voting_status": tile.voting_status.value,
        "upload_attempts": tile.upload_attempts,
        "size_bytes": tile.blob.length,
        "sha256": tile.blob.sha256,
        "stored_at": time_to_json(tile.stored_at),
        "confirmed_at": time_to_json(tile.confirmed_at),
        "last_used_at": time_to_json(tile.last_used_at),
        "origin": version.origin,
        "problem": version.problem,
    }
