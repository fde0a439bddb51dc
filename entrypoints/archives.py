"""Archives by their format: where an export goes, and what an import reads."""

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from tileferry.adapters.filesystem.archives import (
    MbtilesSource,
    MbtilesTarget,
    PmtilesTarget,
    TreeSource,
    TreeTarget,
)
from tileferry.application.ports.archives import ArchiveSource, ArchiveTarget
from tileferry.domain.archives import ArchiveFormat
from tileferry.domain.errors import InvalidValueError


def archive_target(form: ArchiveFormat, path: Path, *, replace: bool) -> ArchiveTarget:
    """Say where an export goes."""
    match form:
        case ArchiveFormat.TREE:
            return TreeTarget(path=path, replace=replace)
        case ArchiveFormat.MBTILES:
            return MbtilesTarget(path=path, replace=replace)
        case ArchiveFormat.PMTILES:
            return PmtilesTarget(path=path, replace=replace)
        case _:
            assert_never(form)


def archive_source(
    form: ArchiveFormat, path: Path, *, check: Callable[[], object]
) -> ArchiveSource:
    """Say what an import reads; ``check`` is called on the way, and may end it by raising."""
    match form:
        case ArchiveFormat.TREE:
            return TreeSource(path, check=check)
        case ArchiveFormat.MBTILES:
            return MbtilesSource(path, check=check)
        case ArchiveFormat.PMTILES:
            raise InvalidValueError(
                field="SRC",
                value=path.name,
                problem="is a PMTiles archive, which can be exported and not imported",
                remedy="convert it to MBTiles first",
            )
        case _:
            assert_never(form)
