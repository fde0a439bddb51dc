"""What every kind of archive promises to the export, run over all of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field
from support.archives import collect_tiles, create_archived_tile, create_image, create_tile_id

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
from tileferry.adapters.memory import MemoryArchive
from tileferry.application.ports.archives import ArchivedTile, ArchiveSource, ArchiveTarget
from tileferry.domain.archives import (
    ArchiveDescription,
    ArchiveDescriptionBuilder,
    TileOrder,
    detect_tile_kind,
    zxy_to_number,
)
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TileId


@define
class ArchiveKind:
    """One kind of archive, at one place."""

    path: Path
    make: Callable[[Path, bool], ArchiveTarget]
    read: Callable[[Path], ArchiveSource]
    folder: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder = self.path.parent

    def target(self, *, replace: bool = False) -> ArchiveTarget:
        return self.make(self.path, replace)

    def source(self) -> ArchiveSource:
        return self.read(self.path)


def make_memory_kind(folder: Path) -> ArchiveKind:
    kept = MemoryArchive()

    def make(_path: Path, replace: bool) -> ArchiveTarget:  # noqa: FBT001  # as the others
        kept.replace = replace
        return kept

    return ArchiveKind(folder / "none", make, lambda _path: kept)


KINDS: dict[str, Callable[[Path], ArchiveKind]] = {
    "tree": lambda folder: ArchiveKind(
        folder / "area", lambda path, replace: TreeTarget(path=path, replace=replace), TreeSource
    ),
    "mbtiles": lambda folder: ArchiveKind(
        folder / "area.mbtiles",
        lambda path, replace: MbtilesTarget(path=path, replace=replace),
        MbtilesSource,
    ),
    "pmtiles": lambda folder: ArchiveKind(
        folder / "area.pmtiles",
        lambda path, replace: PmtilesTarget(path=path, replace=replace),
        PmtilesSource,
    ),
    "geopackage": lambda folder: ArchiveKind(
        folder / "area.gpkg",
        lambda path, replace: GeopackageTarget(path=path, replace=replace),
        GeopackageSource,
    ),
    "qgroundcontrol": lambda folder: ArchiveKind(
        folder / "area.qgctiledb",
        lambda path, replace: QgcTarget(path=path, replace=replace),
        QgcSource,
    ),
    "memory": make_memory_kind,
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveKind:
    return KINDS[request.param](tmp_path)


def archive_tiles(*places: TileId) -> list[ArchivedTile]:
    return [create_archived_tile(tile) for tile in places]


def sort_tiles(tiles: list[ArchivedTile], order: TileOrder) -> list[ArchivedTile]:
    if order is TileOrder.COLUMNS:
        return sorted(tiles, key=lambda tile: tile.tile_id)
    return sorted(
        tiles, key=lambda tile: zxy_to_number(tile.tile_id.zoom, tile.tile_id.x, tile.tile_id.y)
    )


def make_about(tiles: list[ArchivedTile]) -> ArchiveDescription:
    tally = ArchiveDescriptionBuilder()
    for tile in tiles:
        tally.add(tile.tile_id, detect_tile_kind(tile.content))
    return tally.build(name="area", attribution="© somebody")


def write_archive(
    target: ArchiveTarget, tiles: list[ArchivedTile], *, publish: bool = True
) -> None:
    with target.open_draft() as draft:
        for tile in sort_tiles(tiles, target.order):
            draft.add(tile)
        sealed = draft.seal(make_about(tiles))
        assert collect_tiles(list(sealed.tiles("sat"))) == contents_by_tile(tiles)
        if publish:
            draft.publish()


def contents_by_tile(tiles: list[ArchivedTile]) -> dict[TileId, bytes]:
    return {tile.tile_id: tile.content for tile in tiles}


SMALL = archive_tiles(
    create_tile_id(0, 0, 0),
    create_tile_id(10, 511, 340),
    create_tile_id(10, 99, 101),
    create_tile_id(10, 511, 341),
)
OTHER = archive_tiles(create_tile_id(9, 1, 2))


def test_written_tiles_are_read_back(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    found = list(kind.source().tiles("sat"))
    assert collect_tiles(found) == contents_by_tile(SMALL)
    assert len(found) == len(SMALL)


def test_importable_archive_lists_tile_sizes(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    source = kind.source()
    assert dict(source.iter_sizes("sat")) == {tile.tile_id: len(tile.content) for tile in SMALL}
    assert {tile.source for tile, _ in source.iter_sizes("other")} == {"other"}


def test_tile_facts_are_preserved(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    found = [item for item in kind.source().tiles("sat") if isinstance(item, ArchivedTile)]
    told = {item.tile_id: item.facts for item in found}
    assert told == {tile.tile_id: tile.facts for tile in SMALL}


def test_tiles_get_source_given_by_reader(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    assert {tile.source for tile in collect_tiles(list(kind.source().tiles("other")))} == {"other"}


def test_deduplicated_content_is_read_for_every_tile(kind: ArchiveKind) -> None:
    water, land = create_image("water"), create_image("land")
    tiles = [
        create_archived_tile(create_tile_id(5, x, y), land if (x, y) == (3, 3) else water)
        for x in range(6)
        for y in range(6)
    ]
    write_archive(kind.target(), tiles)
    assert collect_tiles(list(kind.source().tiles("sat"))) == contents_by_tile(tiles)


def test_unpublished_draft_leaves_no_file(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL, publish=False)
    assert list(kind.folder.iterdir()) == []


def test_error_in_draft_leaves_nothing_behind(kind: ArchiveKind) -> None:
    with pytest.raises(RuntimeError, match="on the way"), kind.target().open_draft() as draft:  # noqa: PT012
        draft.add(SMALL[0])
        raise RuntimeError("on the way")
    assert list(kind.folder.iterdir()) == []
    write_archive(kind.target(), SMALL)
    assert collect_tiles(list(kind.source().tiles("sat"))) == contents_by_tile(SMALL)


def test_existing_target_is_rejected(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    with pytest.raises(ArchiveError, match="already exists"):
        write_archive(kind.target(), OTHER)
    assert collect_tiles(list(kind.source().tiles("sat"))) == contents_by_tile(SMALL)


def test_existing_target_is_replaced_on_request(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    write_archive(kind.target(replace=True), OTHER)
    assert collect_tiles(list(kind.source().tiles("sat"))) == contents_by_tile(OTHER)


def test_unpublished_draft_replaces_nothing(kind: ArchiveKind) -> None:
    write_archive(kind.target(), SMALL)
    write_archive(kind.target(replace=True), OTHER, publish=False)
    assert collect_tiles(list(kind.source().tiles("sat"))) == contents_by_tile(SMALL)


def test_concurrent_export_to_same_target_is_rejected(kind: ArchiveKind) -> None:
    target = kind.target()
    with target.open_draft(), pytest.raises(ArchiveError, match="another export"):
        write_archive(kind.target(), SMALL)
    write_archive(kind.target(), SMALL)
