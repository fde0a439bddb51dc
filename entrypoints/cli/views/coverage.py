"""What the provider has in an area, as people and scripts read it."""

from typing import Any

from rich import box
from rich.table import Table

from tileferry.application.transfers.survey import ListedTiles
from tileferry.domain.text import in_bytes
from tileferry.domain.tiles import SectorClass, TileCoverage
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
    """Lay out what was found, a line for each zoom level; all of it fits into 80 columns.

    What is refused or stale has a column if there is any. Long cells are folded at their spaces.
    """
    table = Table(
        title=f"Imagery in {coverage.bbox}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # so that it fits into 80 columns
    )
    rows = {
        "zoom": [str(zoom) for zoom in found],
        "tiles": [
            f"{listed.tiles:,} of {_whole(coverage, zoom):,}" for zoom, listed in found.items()
        ],
        "size": [in_bytes(listed.size_bytes) for listed in found.values()],
        "produced": [*map(_days, found.values())],
        "m/px": [*map(_resolutions, found.values())],
    }
    sectors = " / ".join(sector.value for sector in SectorClass)
    captions = []
    if any(listed.refused_resolution for listed in found.values()):
        rows["refused"] = [f"{listed.refused_resolution:,}" for listed in found.values()]
        captions.append("refused: for their resolution")
    if any(any(listed.stale.values()) for listed in found.values()):
        rows["stale"] = [*map(_stale, found.values())]
        captions.append(f"stale: in {sectors}")
    for name in rows:
        table.add_column(name, justify="right")
    for row in zip(*rows.values(), strict=True):
        table.add_row(*row)
    table.caption = (
        "; ".join(captions) or f"none refused for their resolution, none stale in {sectors}"
    )
    table.caption_justify = "left"
    return table


def _whole(coverage: TileCoverage, zoom: int) -> int:
    return sum(part.count for part in coverage.ranges if part.zoom == zoom)


def _days(listed: ListedTiles) -> str:
    if listed.oldest is None or listed.newest is None:
        return "-"
    return _span(listed.oldest.date().isoformat(), listed.newest.date().isoformat())


def _resolutions(listed: ListedTiles) -> str:
    finest, coarsest = listed.finest_m_per_px, listed.coarsest_m_per_px
    if finest is None or coarsest is None:
        return "-"
    return _span(f"{finest:.3g}", f"{coarsest:.3g}")


def _stale(listed: ListedTiles) -> str:
    return " / ".join(f"{listed.stale[sector]:,}" for sector in SectorClass)


def _span(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
