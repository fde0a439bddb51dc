"""Archive formats: directory trees, MBTiles and PMTiles."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.filesystem.archives.mbtiles import MbtilesSource, MbtilesTarget
    from tileferry.adapters.filesystem.archives.pmtiles import PmtilesSource, PmtilesTarget
    from tileferry.adapters.filesystem.archives.tree import TreeSource, TreeTarget

__all__ = [
    "MbtilesSource",
    "MbtilesTarget",
    "PmtilesSource",
    "PmtilesTarget",
    "TreeSource",
    "TreeTarget",
]
