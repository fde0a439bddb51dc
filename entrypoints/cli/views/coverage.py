"""What the provider has in an area, as people and scripts read it."""

from typing import Any

from rich import box
from rich.table import Table

from tileferry.application.transfers.survey import ListedTiles
from tileferry.domain.tiles import SectorClass, TileCoverage
from tileferry.entrypoints.cli.output import in_bytes
from tileferry.entrypoints.cli.views.records import moment_json


def listed_json(listed: ListedTiles) -> dict[str, Any]:
    """Return what was added up, for scripts."""
    return {
        "tiles": listed.tiles,
        "size_bytes": listed.size_bytes,
        "oldest_produced_at": moment_json(listed.oldest),
        "newest_produced_at": moment_json(listed.newest),
        "finest_m_per_px": listed.finest_m_per_px,
        "coarsest_m_per_px": listed.coarsest_m_per_px,
        "refused_resolution": listed.refused_resolution,
        "stale": {sector.value: listed.stale[sector] for sector in SectorClass},
    }


def coverage_table(coverage: TileCoverage, found: dict[int, ListedTiles]) -> Table:
    """Lay out what was found, a line for each zoom level."""
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
