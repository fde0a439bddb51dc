"""Nobody who can write below the root leads us out of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.segments import create_tile, list_damages, list_segments, store_tiles

from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.application.ports.inventory import DamagedBlob, DamagedSegment
from tileferry.domain.errors import StorageError


@pytest.mark.parametrize("planted", [".c6", ".c6/segments"])
def test_invariant_27_symlinked_directory_is_rejected(tmp_path: Path, planted: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "root" / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="unexpected symbolic link"):
        SegmentTileStore(root=tmp_path / "root", index=MemoryBlobIndex())
    assert list(elsewhere.iterdir()) == []


def test_invariant_27_dangling_symlink_is_rejected(tmp_path: Path) -> None:
    (tmp_path / ".c6").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="unexpected symbolic link"):
        SegmentTileStore(root=tmp_path, index=MemoryBlobIndex())
    assert not (tmp_path / "nowhere").exists()


def plant_link(segment: Path) -> None:
    segment.rename(segment.with_suffix(".real"))
    segment.symlink_to(segment.with_suffix(".real"))


def plant_fifo(segment: Path) -> None:
    segment.unlink()
    os.mkfifo(segment)


def plant_directory(segment: Path) -> None:
    segment.unlink()
    segment.mkdir()


@pytest.mark.parametrize("plant", [plant_link, plant_fifo, plant_directory])
def test_invariant_27_segment_that_is_not_a_regular_file_is_rejected(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [1])
    plant(tmp_path / ".c6/segments/000000001.seg")
    with SegmentTileStore(root=tmp_path, index=index) as store:
        with pytest.raises(StorageError, match="000000001"):
            store.read_tile(create_tile(1))
        with pytest.raises(StorageError, match="000000001"):
            store.compact()
        assert {type(item) for item in list_damages(store.verify())} == {
            DamagedBlob,
            DamagedSegment,
        }


def test_invariant_27_symlink_at_the_next_segment_path_is_not_followed(tmp_path: Path) -> None:
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path, index=index, segment_bytes_max=600) as store:
        store_tiles(store, index, [1])
        (tmp_path / ".c6/segments/000000002.seg").symlink_to(tmp_path / "outside")
        with pytest.raises(StorageError, match="000000002"):
            store_tiles(store, index, [2])
    assert not (tmp_path / "outside").exists()
    with SegmentTileStore(root=tmp_path, index=index) as store:
        store_tiles(store, index, [2])
    assert list_segments(tmp_path)[-1] == "000000003.seg"


def test_root_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    index = MemoryBlobIndex()
    with SegmentTileStore(root=tmp_path / "root", index=index) as store:
        store_tiles(store, index, [1])
    assert list_segments(tmp_path / "disk") == ["000000001.seg"]


def test_directory_with_open_permissions_is_made_private(tmp_path: Path) -> None:
    (tmp_path / ".c6").mkdir()
    (tmp_path / ".c6").chmod(0o777)
    SegmentTileStore(root=tmp_path, index=MemoryBlobIndex()).close()
    assert (tmp_path / ".c6").stat().st_mode & 0o777 == 0o700
