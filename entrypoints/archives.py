"""Builds the request, target and source of archive exports and imports."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from tileferry.adapters.filesystem.archives import (
    GeopackageSource,
    GeopackageTarget,
    MbtilesSource,
    MbtilesTarget,
    PmtilesSource,
    PmtilesTarget,
    QgcSource,
    QgcTarget,
    TreeSource,
    TreeTarget,
)
from tileferry.application.archive.archive_export import ExportRequest
from tileferry.application.ports.archives import ArchiveSource, ArchiveTarget
from tileferry.domain.archives import ArchiveFormat
from tileferry.domain.tiles import TileCoverage
from tileferry.domain.tiles.capture import TileScheme
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.tile_source import get_credits


def build_export_request(
    config: Config,
    dest: Path,
    coverages: Sequence[TileCoverage],
    *,
    source: str | None = None,
    name: str | None = None,
    attribution: str | None = None,
) -> ExportRequest:
    """Return a request for tiles of the cache.

    The configured attribution and licence are used only for tiles of the configured source.
    """
    chosen = config.source if source is None else source
    credit = get_credits(config) if chosen == config.source else {}
    return ExportRequest(
        coverages=tuple(coverages),
        source=chosen,
        name=name or dest.absolute().stem,
        attribution=attribution or credit.get("attribution"),
        licence=credit.get("licence"),
    )


def build_archive_target(form: ArchiveFormat, path: Path, *, replace: bool) -> ArchiveTarget:
    match form:
        case ArchiveFormat.TREE:
            return TreeTarget(path=path, replace=replace)
        case ArchiveFormat.MBTILES:
            return MbtilesTarget(path=path, replace=replace)
        case ArchiveFormat.PMTILES:
            return PmtilesTarget(path=path, replace=replace)
        case ArchiveFormat.GEOPACKAGE:
            return GeopackageTarget(path=path, replace=replace)
        case ArchiveFormat.QGROUNDCONTROL:
            return QgcTarget(path=path, replace=replace)
        case _:
            assert_never(form)


def detect_import_format(path: Path) -> ArchiveFormat:
    """Return the format of an archive: a folder is a tree, and a file is MBTiles unless its suffix
    names another format.
    """
    if path.is_dir():
        return ArchiveFormat.TREE
    suffix = path.suffix.lower().removeprefix(".")
    return ArchiveFormat(suffix) if suffix in {*ArchiveFormat} else ArchiveFormat.MBTILES


def build_archive_source(
    form: ArchiveFormat,
    path: Path,
    *,
    check: Callable[[], object],
    scheme: TileScheme | None = None,
) -> ArchiveSource:
    """Return the source that an import reads; ``check`` is called regularly and may raise to stop
    it. ``scheme`` says how a tree counts rows.
    """
    match form:
        case ArchiveFormat.TREE:
            return TreeSource(path, check=check, scheme=scheme)
        case ArchiveFormat.MBTILES:
            return MbtilesSource(path, check=check)
        case ArchiveFormat.PMTILES:
            return PmtilesSource(path, check=check)
        case ArchiveFormat.GEOPACKAGE:
            return GeopackageSource(path, check=check)
        case ArchiveFormat.QGROUNDCONTROL:
            return QgcSource(path, check=check)
        case _:
            assert_never(form)
