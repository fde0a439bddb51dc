"""The raw sink on a disk: its layout, what it refuses to follow, and what it finds damaged."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from support.raw_crash import create_raw_sink
from support.raw_partitions import (
    AREA,
    KEY,
    NOW,
    RUN,
    TILES,
    create_report,
    list_damages,
    seal,
    store_tiles,
    tile_content,
)

from tileferry.adapters.filesystem.raw.sink import FileRawSink
from tileferry.application.ports.tiles import TileMetadataStore
from tileferry.domain.errors import InvalidStateError, InvalidValueError, MisuseError, StorageError
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import BlobRef, NewTile, TileId, VotingStatus

PARTS = ("satellite", "acme", "roads", "2026-10-25", "run-1")


@pytest.fixture
def sink(tmp_path: Path) -> FileRawSink:
    return create_raw_sink(tmp_path / "raw")


def collect_modes(folder: Path) -> set[tuple[bool, int]]:
    paths = (folder, *folder.rglob("*"))
    return {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}


def test_spec3_sealed_run_is_one_directory_with_no_extra_files(sink: FileRawSink) -> None:
    seal(sink)
    folder = sink.root.joinpath(*PARTS)
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == [".c6/segments/000000001.seg", "manifest.jsonl"]
    assert [path.name for path in folder.parent.iterdir()] == ["run-1"]


def test_invariant_27_open_partition_is_private_to_its_owner(sink: FileRawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        assert collect_modes(sink.root) == {(True, 0o700), (False, 0o600)}


def test_invariant_16_a_sealed_run_is_read_only(sink: FileRawSink) -> None:
    seal(sink)
    folder = sink.root.joinpath(*PARTS)
    assert collect_modes(folder) == {(True, 0o555), (False, 0o444)}
    with pytest.raises(StorageError), sink.open(KEY, RUN, AREA):
        pass
    with sink.open_reader(seal(sink, run_id=RunId("run-2"))) as reader:
        assert len(list(reader.iter_entries())) == 20
    assert collect_modes(folder) == {(True, 0o555), (False, 0o444)}


def test_reading_creates_no_files(tmp_path: Path) -> None:
    sink = create_raw_sink(tmp_path / "raw")
    assert sink.find(KEY, RUN) is None
    assert not sink.root.exists()


@pytest.mark.parametrize("level", range(len(PARTS)))
def test_invariant_27_planted_symlink_is_not_followed(
    sink: FileRawSink, tmp_path: Path, level: int
) -> None:
    sealed = seal(sink)
    link = sink.root.joinpath(*PARTS[: level + 1])
    elsewhere = tmp_path / "elsewhere"
    make_writable(sink)
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    for use in (
        lambda: sink.find(KEY, RUN),
        lambda: list_damages(sink, sealed),
        lambda: seal(sink),
    ):
        with pytest.raises(StorageError, match=r"symbolic link|it is sealed"):
            use()
    assert sorted(elsewhere.rglob("*")) == before


def make_writable(sink: FileRawSink) -> None:
    """Do as somebody who means it: modes keep its owner from slips, and root from nothing."""
    for path in sink.root.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("name", [".run-1.work", ".run-1.open"])
def test_invariant_27_symlink_in_place_of_an_open_run_is_not_followed(
    sink: FileRawSink, tmp_path: Path, name: str
) -> None:
    with sink.open(KEY, RunId("run-0"), AREA):
        pass
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    sink.root.joinpath(*PARTS[:-1], name).symlink_to(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"), sink.open(KEY, RUN, AREA):
        pass
    assert list(elsewhere.iterdir()) == []


def test_root_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "raw").symlink_to(tmp_path / "large-disk")
    sink = create_raw_sink(tmp_path / "raw")
    assert list_damages(sink, seal(sink)) == []


def test_unknown_file_in_the_directory_blocks_the_seal(sink: FileRawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        planted = sink.root.joinpath(*PARTS[:-1], ".run-1.open", ".c6", "segments", "notes.txt")
        planted.write_text("mine")
        with pytest.raises(StorageError, match=r"notes\.txt: unexpected file"):
            raw.seal(create_report(3), at=NOW)
    assert sink.find(KEY, RUN) is None
    planted.unlink()
    assert seal(sink, TILES[3:5]).tiles == 5


# Damage


def flip_bit(path: Path, byte: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)


def is_damage_found(sink: FileRawSink, sealed: SealedPartition) -> bool:
    try:
        return list_damages(sink, sealed) != []
    except (InvalidStateError, InvalidValueError):
        return True


def test_invariant_16_every_flipped_bit_is_detected(sink: FileRawSink) -> None:
    """One bit of each byte of each file; which one goes round."""
    sealed = seal(sink, TILES[:1])
    assert not is_damage_found(sink, sealed)
    files = [path for path in sink.root.rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        for byte in range(path.stat().st_size):
            flip_bit(path, byte, byte % 8)
            assert is_damage_found(sink, sealed), (path, byte)
            flip_bit(path, byte, byte % 8)
    assert not is_damage_found(sink, sealed)


def test_damaged_tile_is_reported_by_id(sink: FileRawSink) -> None:
    sealed = seal(sink, TILES[:3])
    (segment,) = sink.root.rglob("*.seg")
    flip_bit(segment, segment.read_bytes().index(tile_content(TILES[1])) + 5, 0)
    (damage,) = list_damages(sink, sealed)
    assert damage.subject == str(TILES[1])
    assert "do not match" in damage.problem


@pytest.mark.parametrize("what", ["missing", "cut"])
def test_missing_or_truncated_segment_is_reported_for_each_tile(
    sink: FileRawSink, what: str
) -> None:
    sealed = seal(sink, TILES[:3])
    (segment,) = sink.root.rglob("*.seg")
    make_writable(sink)
    if what == "missing":
        segment.unlink()
    else:
        os.truncate(segment, 20)
    assert {damage.subject for damage in list_damages(sink, sealed)} >= {
        str(tile) for tile in TILES[:3]
    }


def test_damaged_segment_header_is_detected(sink: FileRawSink) -> None:
    sealed = seal(sink, TILES[:3])
    (segment,) = sink.root.rglob("*.seg")
    flip_bit(segment, 0, 0)
    (damage,) = list_damages(sink, sealed)
    assert (damage.subject, damage.problem) == ("000000001.seg", "its file header is damaged")


@pytest.mark.parametrize("what", ["manifest.jsonl", ".c6"])
def test_sealed_run_with_a_missing_file_is_rejected(sink: FileRawSink, what: str) -> None:
    sealed = seal(sink)
    path = sink.root.joinpath(*PARTS, what)
    make_writable(sink)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InvalidStateError, match="never repaired"):
        list_damages(sink, sealed)


def test_moved_run_directory_is_rejected(sink: FileRawSink) -> None:
    seal(sink)
    folder = sink.root.joinpath(*PARTS)
    folder.rename(folder.with_name("run-2"))
    with pytest.raises(InvalidStateError, match="manifest of run run-2: belongs to"):
        sink.find(KEY, RunId("run-2"))


def test_rewritten_manifest_is_rejected(sink: FileRawSink) -> None:
    """Its own digest fits; only who remembers the first one finds out."""
    sealed = seal(sink)
    folder = sink.root.joinpath(*PARTS)
    make_writable(sink)
    folder.rename(folder.parents[4] / "aside")
    again = seal(sink, TILES[:19])
    assert (again.key, again.run_id) == (sealed.key, sealed.run_id)
    with pytest.raises(InvalidStateError, match="is missing or has changed since it was sealed"):
        list_damages(sink, sealed)


# What an earlier try left


def work_path(sink: FileRawSink, name: str) -> Path:
    return sink.root.joinpath(*PARTS[:-1], ".run-1.work", name)


def list_visible_tiles(sink: FileRawSink) -> set[TileId]:
    with sink.open(KEY, RUN, AREA) as raw:
        return {
            tile.tile_id
            for tile in raw.tile_metadata_store.query_by_bbox(AREA.bbox, AREA.zoom_levels)
        }


def store_three_tiles(sink: FileRawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])


def test_torn_row_is_dropped_and_its_tile_stored_again(sink: FileRawSink) -> None:
    store_three_tiles(sink)
    rows = work_path(sink, "rows")
    os.truncate(rows, rows.stat().st_size - 7)
    assert list_visible_tiles(sink) == set(TILES[:2])
    assert seal(sink, TILES[2:4]).tiles == 4


def test_damaged_row_loses_only_its_tile(
    sink: FileRawSink, caplog: pytest.LogCaptureFixture
) -> None:
    store_three_tiles(sink)
    rows = work_path(sink, "rows")
    flip_bit(rows, rows.read_bytes().index(b"\n") + 40, 3)
    rows.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        assert list_visible_tiles(sink) == {TILES[0], TILES[2]}
    assert [vars(record)["kind"] for record in caplog.records] == ["partition.rows_lost"]
    assert seal(sink, TILES[1:2]).tiles == 3


@pytest.mark.parametrize("what", ["missing", "cut"])
def test_row_without_its_bytes_is_ignored(sink: FileRawSink, what: str) -> None:
    store_three_tiles(sink)
    (segment,) = sink.root.rglob("*.seg")
    if what == "missing":
        segment.unlink()
        assert list_visible_tiles(sink) == set()
    else:
        os.truncate(segment, segment.stat().st_size - 1)
        assert list_visible_tiles(sink) == set(TILES[:2])
    sealed = seal(sink, TILES[:4])
    assert sealed.tiles == 4
    assert list_damages(sink, sealed) == []


def test_interrupted_seal_is_restarted(sink: FileRawSink) -> None:
    store_three_tiles(sink)
    folder = sink.root.joinpath(*PARTS[:-1], ".run-1.open")
    (folder / "manifest.jsonl").write_text("of an earlier try")
    (folder / "manifest.jsonl.tmp").write_text("of an earlier try")
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    sealed = seal(sink, TILES[3:5])
    assert sealed.tiles == 5
    assert list_damages(sink, sealed) == []


def test_work_files_left_after_a_seal_are_removed(sink: FileRawSink) -> None:
    seal(sink)
    work_path(sink, "rows").parent.mkdir()
    work_path(sink, "rows").write_text("old")
    seal(sink, run_id=RunId("run-2"))
    names = {path.name for path in sink.root.joinpath(*PARTS[:-1]).iterdir()}
    assert names == {"run-1", "run-2"}


# As a place to download to


def test_open_partition_supports_tile_and_segment_queries(sink: FileRawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        store, metadata = raw.tile_store, raw.tile_metadata_store
        assert store.tile_exists(TILES[0])
        assert not store.tile_exists(TILES[5])
        assert store.read_tile(TILES[2]) == tile_content(TILES[2])
        assert list_store_damages(store) == []
        assert metadata.get_last_segment() == 1
        assert metadata.sum_live_bytes() == [(1, 3 * len(tile_content(TILES[0])))]
        assert metadata.locate(TILES[9]) is None
        assert not isinstance(metadata, TileMetadataStore), "there is nothing to upload"
        metadata.mark_used([TILES[0]])


def list_store_damages(store: Any) -> list[Any]:
    return [found for found in store.verify() if hasattr(found, "problem")]


def test_cache_only_operations_are_rejected(sink: FileRawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        metadata = raw.tile_metadata_store
        blob = BlobRef(location=(1, 16), length=1, sha256="0" * 64)
        tile = NewTile(
            tile_id=TILES[0],
            flight_id=RUN,
            produced_at=NOW,
            resolution_m_per_px=0.6,
            sector_class=AREA.sector_class,
            blob=blob,
        )
        elsewhere = TileId(source="satellite", zoom=1, x=0, y=0)
        for use in (
            lambda: raw.tile_store.delete_tile(TILES[0]),
            lambda: metadata.move([(TILES[0], blob, blob)]),
            lambda: metadata.insert_metadata(evolve(tile, tile_id=elsewhere)),
            lambda: metadata.insert_metadata(evolve(tile, voting_status=VotingStatus.PENDING)),
        ):
            with pytest.raises(MisuseError):
                use()
    assert list_visible_tiles(sink) == set(TILES[:3])
