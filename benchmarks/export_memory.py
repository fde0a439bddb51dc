"""``python -m benchmarks.export_memory folder url dest``: export a cache, print the peak."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.cache_memory import peak_kib
from benchmarks.cache_site import ZOOM, opened
from tileferry.adapters.filesystem.archives import MbtilesTarget, PmtilesTarget, TreeTarget
from tileferry.application.archive.archive_export import ArchiveExport, ExportReport, ExportRequest
from tileferry.application.ports.archives import ArchiveTarget
from tileferry.domain.archives import ArchiveFormat, detect_format
from tileferry.domain.tiles import BBox, TileCoverage

WORLD = BBox(west=-180, south=-90, east=180, north=90)
TARGETS: dict[ArchiveFormat, Callable[..., ArchiveTarget]] = {
    ArchiveFormat.TREE: TreeTarget,
    ArchiveFormat.MBTILES: MbtilesTarget,
    ArchiveFormat.PMTILES: PmtilesTarget,
}


def exported(folder: Path, url: str, dest: Path) -> ExportReport:
    """Export everything that a cache has, in the format that the suffix says."""
    with opened(folder, url) as cache:
        return ArchiveExport(
            tile_store=cache.tiles,
            tile_metadata_store=cache.metadata,
            logger=logging.getLogger("benchmarks"),
        ).export(
            ExportRequest(
                coverages=(TileCoverage(bbox=WORLD, zoom_levels=[ZOOM]),),
                source="sat",
                name="bench",
            ),
            TARGETS[detect_format(dest.name)](path=dest),
        )


if __name__ == "__main__":
    exported(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    print(peak_kib())
