"""Archive formats: directory trees, MBTiles, PMTiles, GeoPackage and QGroundControl."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.filesystem.archives.geopackage import (
        GeopackageSource,
        GeopackageTarget,
    )
    from tileferry.adapters.filesystem.archives.mbtiles import MbtilesSource, MbtilesTarget
    from tileferry.adapters.filesystem.archives.pmtiles import PmtilesSource, PmtilesTarget
    from tileferry.adapters.filesystem.archives.qgc_tiles import QgcSource, QgcTarget
    from tileferry.adapters.filesystem.archives.tree import TreeSource, TreeTarget

__all__ = [
    "GeopackageSource",
    "GeopackageTarget",
    "MbtilesSource",
    "MbtilesTarget",
    "PmtilesSource",
    "PmtilesTarget",
    "QgcSource",
    "QgcTarget",
    "TreeSource",
    "TreeTarget",
]
