"""``tileferry coverage``: show the provider's tiles in an area."""

from typing import TYPE_CHECKING, Any

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    BufferOption,
    DetailOption,
    RouteOption,
    ZoomOption,
)

if TYPE_CHECKING:
    from rich.table import Table

    from tileferry.application.download.survey import ListingSummary
    from tileferry.domain.tiles import TileCoverage

app = declare_command()
SCHEMA = "tileferry.coverage.v1"


@app.command(
    "coverage",
    epilog=format_examples(
        "tileferry coverage --bbox 36.1,49.9,36.4,50.1 --zoom 13-15",
        "tileferry coverage --bbox 36.1,49.9,36.4,50.1 --zoom 15 --json",
    ),
)
def coverage_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: ZoomOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what the provider has in an area, without downloading it.

    For each area and zoom level: number, size, age and resolution of the tiles. Stale tiles are
    refused in sector active_conflict and downgraded in stable_rear.
    """
    from tileferry.entrypoints.cli.areas import AreaInput, parse_coverages
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.progress_view import WaitPrinter
    from tileferry.entrypoints.tile_source import format_credits, get_credits

    given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
    with open_installation(config, WaitPrinter(stderr)) as installation:
        settings = installation.config
        coverages = parse_coverages(settings, given, zoom)
        survey = installation.area_survey
        surveyed = [(coverage, survey.summarize(coverage)) for coverage in coverages]
    if json:
        first, *others = (_coverage_to_json(*item) for item in surveyed)
        more = {"more": others} if others else {}
        print_json(SCHEMA, {**first, **more, **get_credits(settings)})
        return
    for coverage, found in surveyed:
        stdout.print(build_coverage_table(coverage, found))
        if not any(tiles.tiles for tiles in found.values()):
            stderr.print("The provider has no tiles there; check the area and its zoom levels.")
    if (named := format_credits(settings)) is not None:
        stdout.print(named, markup=False, soft_wrap=True)


def _coverage_to_json(
    coverage: "TileCoverage", found: "dict[int, ListingSummary]"
) -> dict[str, Any]:
    from tileferry.entrypoints.cli.formatting import bbox_to_json

    lines = [{"zoom": level, **_listing_to_json(tiles)} for level, tiles in found.items()]
    return {"bbox": bbox_to_json(coverage.bbox), "zooms": lines}


def _listing_to_json(listed: "ListingSummary") -> dict[str, Any]:
    from tileferry.domain.tiles import SectorClass
    from tileferry.entrypoints.cli.formatting import time_to_json

    return {
        "tiles": listed.tiles,
        "size_bytes": listed.size_bytes,
        "in_cache": listed.stored,
        "oldest_produced_at": time_to_json(listed.oldest),
        "newest_produced_at": time_to_json(listed.newest),
        "finest_m_per_px": listed.finest_m_per_px,
        "coarsest_m_per_px": listed.coarsest_m_per_px,
        "refused_resolution": listed.refused_resolution,
        "stale": {sector.value: listed.stale[sector] for sector in SectorClass},
    }


def build_coverage_table(coverage: "TileCoverage", found: "dict[int, ListingSummary]") -> "Table":
    """Return a table with one line per zoom level that fits into 80 columns.

    Refused and stale tiles have a column only if there are any. Long cells wrap at spaces.
    """
    from rich import box

    from tileferry.domain.text import format_bytes
    from tileferry.domain.tiles import SectorClass
    from tileferry.entrypoints.cli.formatting import format_extent
    from tileferry.entrypoints.cli.tables import FittingTable

    table = FittingTable(
        drop=("m/px", "size", "produced"),
        title=f"Imagery in {format_extent(coverage)}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # to fit into 80 columns
    )
    rows = {
        "zoom": [str(zoom) for zoom in found],
        "tiles": [
            f"{listed.tiles:,} of {_count_tiles(coverage, zoom):,}"
            for zoom, listed in found.items()
        ],
        "size": [format_bytes(listed.size_bytes) for listed in found.values()],
        "produced": [*map(_format_dates, found.values())],
        "m/px": [*map(_format_resolutions, found.values())],
    }
    sectors = " / ".join(sector.value for sector in SectorClass)
    captions = []
    if any(listed.stored for listed in found.values()):
        rows["cached"] = [f"{listed.stored:,}" for listed in found.values()]
        captions.append("cached: already in the cache, and up to date")
    if any(listed.refused_resolution for listed in found.values()):
        rows["refused"] = [f"{listed.refused_resolution:,}" for listed in found.values()]
        captions.append("refused: by resolution")
    if any(any(listed.stale.values()) for listed in found.values()):
        rows["stale"] = [*map(_format_stale, found.values())]
        captions.append(f"stale: in {sectors}")
    for name in rows:
        table.add_column(name, justify="right")
    for row in zip(*rows.values(), strict=True):
        table.add_row(*row)
    if not {"refused", "stale"} & rows.keys():
        captions.append(f"none refused by resolution, none stale in {sectors}")
    table.caption = "; ".join(captions)
    table.caption_justify = "left"
    return table


def _count_tiles(coverage: "TileCoverage", zoom: int) -> int:
    return sum(part.count for part in coverage.ranges if part.zoom == zoom)


def _format_dates(listed: "ListingSummary") -> str:
    if listed.oldest is None or listed.newest is None:
        return "-"
    return _format_span(listed.oldest.date().isoformat(), listed.newest.date().isoformat())


def _format_resolutions(listed: "ListingSummary") -> str:
    finest, coarsest = listed.finest_m_per_px, listed.coarsest_m_per_px
    if finest is None or coarsest is None:
        return "-"
    return _format_span(f"{finest:.3g}", f"{coarsest:.3g}")


def _format_stale(listed: "ListingSummary") -> str:
    from tileferry.domain.tiles import SectorClass

    return " / ".join(f"{listed.stale[sector]:,}" for sector in SectorClass)


def _format_span(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
