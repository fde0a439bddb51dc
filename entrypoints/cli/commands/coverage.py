"""``tileferry coverage``: what the provider has in an area."""

from datetime import UTC, datetime
from typing import Any

import typer
from rich import box
from rich.table import Table

from tileferry.application.survey import Gates, ListedTiles, survey
from tileferry.domain.tiles import SectorClass, TileCoverage
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.options.area import AreaOption, BboxOption, ZoomOption, coverage_of
from tileferry.entrypoints.cli.output import in_bytes, notes, opened, people, print_json
from tileferry.entrypoints.cli.provider_listing import provider_calls

SCHEMA = "tileferry.coverage.v1"
app = typer.Typer(add_completion=False)


@app.command(
    "coverage", epilog="Example: tileferry coverage --bbox 36.1,49.9,36.4,50.1 --zoom 14-16"
)
def coverage_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what the provider has in an area, by zoom level: how much, how old, how fine.

    Stale tiles are refused in sector active_conflict, and downgraded in stable_rear.
    """
    with opened(config) as container:
        coverage = coverage_of(container.config(), bbox, area, zoom)
        calls = provider_calls(container, f"coverage {coverage.bbox}")
        settings = container.download_settings()
        gates = Gates(
            resolution=settings.gate,
            freshness=container.metadata_store().freshness,
            now=datetime.fromtimestamp(container.clock().now(), UTC),
        )
        found = survey(calls.pages(coverage, settings.listing), coverage, gates)
    if json:
        lines = [{"zoom": zoom, **listed_json(tiles)} for zoom, tiles in found.items()]
        print_json(SCHEMA, {"bbox": str(coverage.bbox), "zoom_levels": lines})
        return
    people.print(_table(coverage, found))
    if not any(tiles.tiles for tiles in found.values()):
        notes.print("The provider has nothing there; check the area, and its zoom levels.")


def listed_json(listed: ListedTiles) -> dict[str, Any]:
    """Return what was added up, for scripts."""
    return {
        "tiles": listed.tiles,
        "bytes": listed.size_bytes,
        "oldest": None if listed.oldest is None else listed.oldest.isoformat(),
        "newest": None if listed.newest is None else listed.newest.isoformat(),
        "finest_m_per_px": listed.finest_m_per_px,
        "coarsest_m_per_px": listed.coarsest_m_per_px,
        "refused_resolution": listed.refused_resolution,
        "stale": {sector.value: listed.stale[sector] for sector in SectorClass},
    }


def _table(coverage: TileCoverage, found: dict[int, ListedTiles]) -> Table:
    table = Table(
        title=f"Imagery in {coverage.bbox}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # so that it fits into 80 columns
    )
    for name in ("zoom", "tiles", "size", "oldest", "newest", "m/px", "refused", "stale"):
        table.add_column(name, justify="right", no_wrap=True)
    for zoom, listed in found.items():
        whole = sum(part.count for part in coverage.ranges if part.zoom == zoom)
        table.add_row(
            str(zoom),
            f"{listed.tiles:,} of {whole:,}",
            in_bytes(listed.size_bytes),
            "-" if listed.oldest is None else listed.oldest.date().isoformat(),
            "-" if listed.newest is None else listed.newest.date().isoformat(),
            _resolutions(listed),
            str(listed.refused_resolution),
            "/".join(str(listed.stale[sector]) for sector in SectorClass),
        )
    sectors = " / ".join(sector.value for sector in SectorClass)
    table.caption = f"refused: for their resolution; stale: in {sectors}"
    table.caption_justify = "left"
    return table


def _resolutions(listed: ListedTiles) -> str:
    finest, coarsest = listed.finest_m_per_px, listed.coarsest_m_per_px
    if finest is None or coarsest is None:
        return "-"
    return f"{finest:g}" if finest == coarsest else f"{finest:g}-{coarsest:g}"
