"""What every kind of archive promises to the export, run over all of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field
from support.archives import archived, picture, place, tiles_of

from tileferry.adapters.filesystem.archives import (
    MbtilesSource,
    MbtilesTarget,
    PmtilesSource,
    PmtilesTarget,
    TreeSource,
    TreeTarget,
)
from tileferry.adapters.memory import MemoryArchive
from tileferry.application.ports.archives import ArchivedTile, ArchiveTarget
from tileferry.domain.archives import AboutTally, ArchiveAbout, TileOrder, kind_of, tile_number
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TileId


@define
class Kind:
    """One kind of archive, at one place."""

    path: Path
    make: Callable[[Path, bool], ArchiveTarget]
    read: Callable[[Path], TreeSource | MbtilesSource | PmtilesSource | MemoryArchive]
    carries_facts: bool = True
    folder: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder = self.path.parent

    def target(self, *, replace: bool = False) -> ArchiveTarget:
        return self.make(self.path, replace)

    def source(self) -> TreeSource | MbtilesSource | PmtilesSource | MemoryArchive:
        return self.read(self.path)


def _in_memory(folder: Path) -> Kind:
    kept = MemoryArchive()

    def make(_path: Path, replace: bool) -> ArchiveTarget:  # noqa: FBT001  # as the others
        kept.replace = replace
        return kept

    return Kind(folder / "none", make, lambda _path: kept)


KINDS: dict[str, Callable[[Path], Kind]] = {
    "tree": lambda folder: Kind(
        folder / "area", lambda path, replace: TreeTarget(path=path, replace=replace), TreeSource
    ),
    "mbtiles": lambda folder: Kind(
        folder / "area.mbtiles",
        lambda path, replace: MbtilesTarget(path=path, replace=replace),
        MbtilesSource,
    ),
    "pmtiles": lambda folder: Kind(
        folder / "area.pmtiles",
        lambda path, replace: PmtilesTarget(path=path, replace=replace),
        PmtilesSource,
        carries_facts=False,
    ),
    "memory": _in_memory,
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return KINDS[request.param](tmp_path)


def area(*places: TileId) -> list[ArchivedTile]:
    return [archived(tile) for tile in places]


def in_order(tiles: list[ArchivedTile], order: TileOrder) -> list[ArchivedTile]:
    if order is TileOrder.COLUMNS:
        return sorted(tiles, key=lambda tile: tile.tile_id)
    return sorted(
        tiles, key=lambda tile: tile_number(tile.tile_id.zoom, tile.tile_id.x, tile.tile_id.y)
    )


def about(tiles: list[ArchivedTile]) -> ArchiveAbout:
    tally = AboutTally()
    for tile in tiles:
        tally.add(tile.tile_id, kind_of(tile.content))
    return tally.about(name="area", attribution="© somebody")


def write(target: ArchiveTarget, tiles: list[ArchivedTile], *, publish: bool = True) -> None:
    with target.draft() as draft:
        for tile in in_order(tiles, target.order):
            draft.add(tile)
        sealed = draft.seal(about(tiles))
        assert tiles_of(list(sealed.tiles("sat"))) == contents(tiles)
        if publish:
            draft.publish()


def contents(tiles: list[ArchivedTile]) -> dict[TileId, bytes]:
    return {tile.tile_id: tile.content for tile in tiles}


SMALL = area(place(0, 0, 0), place(10, 511, 340), place(10, 99, 101), place(10, 511, 341))
OTHER = area(place(9, 1, 2))


def test_what_was_written_is_read(kind: Kind) -> None:
    write(kind.target(), SMALL)
    found = list(kind.source().tiles("sat"))
    assert tiles_of(found) == contents(SMALL)
    assert len(found) == len(SMALL)


@pytest.mark.parametrize("kind", ["tree", "mbtiles", "memory"], indirect=True)
def test_what_can_be_imported_tells_sizes_first(kind: Kind) -> None:
    write(kind.target(), SMALL)
    source = kind.source()
    assert not isinstance(source, PmtilesSource)
    assert dict(source.sizes("sat")) == {tile.tile_id: len(tile.content) for tile in SMALL}
    assert {tile.source for tile, _ in source.sizes("other")} == {"other"}


def test_what_is_known_of_a_tile_goes_along(kind: Kind) -> None:
    write(kind.target(), SMALL)
    found = [item for item in kind.source().tiles("sat") if isinstance(item, ArchivedTile)]
    told = {item.tile_id: item.facts for item in found}
    assert (told == {tile.tile_id: tile.facts for tile in SMALL}) is kind.carries_facts


def test_tiles_take_the_source_that_the_reader_says(kind: Kind) -> None:
    write(kind.target(), SMALL)
    assert {tile.source for tile in tiles_of(list(kind.source().tiles("other")))} == {"other"}


def test_equal_content_is_read_wherever_it_was_put(kind: Kind) -> None:
    water, land = picture("water"), picture("land")
    tiles = [
        archived(place(5, x, y), land if (x, y) == (3, 3) else water)
        for x in range(6)
        for y in range(6)
    ]
    write(kind.target(), tiles)
    assert tiles_of(list(kind.source().tiles("sat"))) == contents(tiles)


def test_nothing_has_the_name_before_it_is_published(kind: Kind) -> None:
    write(kind.target(), SMALL, publish=False)
    assert list(kind.folder.iterdir()) == []


def test_an_error_leaves_nothing(kind: Kind) -> None:
    with pytest.raises(RuntimeError, match="on the way"), kind.target().draft() as draft:  # noqa: PT012
        draft.add(SMALL[0])
        raise RuntimeError("on the way")
    assert list(kind.folder.iterdir()) == []
    write(kind.target(), SMALL)
    assert tiles_of(list(kind.source().tiles("sat"))) == contents(SMALL)


def test_a_place_that_is_taken_is_refused(kind: Kind) -> None:
    write(kind.target(), SMALL)
    with pytest.raises(ArchiveError, match="is there already"):
        write(kind.target(), OTHER)
    assert tiles_of(list(kind.source().tiles("sat"))) == contents(SMALL)


def test_a_place_is_replaced_for_who_asks(kind: Kind) -> None:
    write(kind.target(), SMALL)
    write(kind.target(replace=True), OTHER)
    assert tiles_of(list(kind.source().tiles("sat"))) == contents(OTHER)


def test_what_is_not_published_replaces_nothing(kind: Kind) -> None:
    write(kind.target(), SMALL)
    write(kind.target(replace=True), OTHER, publish=False)
    assert tiles_of(list(kind.source().tiles("sat"))) == contents(SMALL)


def test_two_cannot_write_to_one_place(kind: Kind) -> None:
    target = kind.target()
    with target.draft(), pytest.raises(ArchiveError, match="another export"):
        write(kind.target(), SMALL)
    write(kind.target(), SMALL)
