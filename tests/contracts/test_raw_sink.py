"""What every RawSink must do."""

import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from support.raw_partitions import (
    AREA,
    DAY,
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
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.memory.raw_sink import MemoryRawSink
from tileferry.application.ports.raw_partitions import RawSink
from tileferry.domain.errors import (
    CacheLockError,
    FreshnessRejectionError,
    InvalidStateError,
    InvalidValueError,
    StorageError,
    TileManagerError,
)
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadTally,
    FreshnessLabel,
    NewTile,
    SectorClass,
    TileSet,
    TileValidators,
)

JOURNAL = "run-1__0123456789abcdef.json"


@pytest.fixture(params=["memory", "file"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> RawSink:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        return MemoryRawSink(clock=clock)
    return FileRawSink(root=tmp_path / "raw", clock=clock, logger=logging.getLogger("test"))


def test_spec3_sealed_partition_round_trips(sink: RawSink) -> None:
    sealed = seal(sink, TILES[:20])
    assert (sealed.key, sealed.run_id, sealed.tiles, sealed.sealed_at) == (KEY, RUN, 20, NOW)
    assert sealed.size_bytes == sum(len(tile_content(tile)) for tile in TILES[:20])
    with sink.open_reader(sealed) as reader:
        assert (reader.header.area, reader.header.tiles_listed) == (AREA, 20)
        assert reader.header.tally == DownloadTally(tiles_downloaded=20)
        entries = {entry.tile_id: entry for entry in reader.iter_entries()}
        assert set(entries) == set(TILES[:20])
        for tile, entry in entries.items():
            assert reader.read_tile(entry) == tile_content(tile)
            assert (entry.freshness, entry.produced_at) == (FreshnessLabel.FRESH, NOW - DAY)
        assert list(reader.verify()) == []
        assert len(list(reader.iter_entries())) == 20  # it may be gone through again


def test_unsealed_partition_is_not_found(sink: RawSink) -> None:
    assert sink.find(KEY, RUN) is None
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:5])
        assert sink.find(KEY, RUN) is None
    assert sink.find(KEY, RUN) is None


def test_sealed_partition_is_found_by_key_and_run(sink: RawSink) -> None:
    sealed = seal(sink)
    assert sink.find(KEY, RUN) == sealed
    assert sink.find(KEY, RunId("run-2")) is None
    other = evolve(KEY, logical_date=KEY.logical_date + DAY)
    assert sink.find(other, RUN) is None


def test_spec3_each_run_has_its_own_raw_partition(sink: RawSink) -> None:
    first = seal(sink, TILES[:5], run_id=RunId("run-b"))
    second = seal(sink, TILES[3:6], run_id=RunId("run-a"))
    assert (sink.find(KEY, first.run_id), sink.find(KEY, second.run_id)) == (first, second)
    assert list_damages(sink, first) == list_damages(sink, second) == []


def test_invariant_16_sealed_partition_cannot_be_opened_for_writing(sink: RawSink) -> None:
    sealed = seal(sink)
    for _ in range(2):
        with (
            pytest.raises(StorageError, match="it is sealed; sealed raw partitions never change"),
            sink.open(KEY, RUN, AREA),
        ):
            pass
    assert sink.find(KEY, RUN) == sealed
    assert list_damages(sink, sealed) == []


def test_invariant_16_open_writer_changes_nothing_after_seal(sink: RawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        sealed = raw.seal(create_report(3), at=NOW)
        with suppress(TileManagerError):
            store_tiles(raw, TILES[3:4])
        with suppress(TileManagerError):
            raw.tile_store.delete_tile(TILES[0])
        assert raw.seal(create_report(4), at=NOW + DAY) == sealed
    assert sink.find(KEY, RUN) == sealed
    assert list_damages(sink, sealed) == []
    with sink.open_reader(sealed) as reader:
        assert {entry.tile_id for entry in reader.iter_entries()} == set(TILES[:3])


def test_reopened_raw_partition_resumes(sink: RawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:5])
        journal = raw.journals.open(JOURNAL)
        journal.append(TILES[:5])
        journal.flush()
        journal.close()
    with sink.open(KEY, RUN, AREA) as raw:
        found = raw.tile_metadata_store.query_by_bbox(AREA.bbox, AREA.zoom_levels)
        assert {tile.tile_id for tile in found} == set(TILES[:5])
        assert set(raw.tile_metadata_store.find_stored(TILES[4:7])) == {TILES[4]}
        assert raw.tile_metadata_store.find_stored(TILES[5:7]) == {}
        raw.tile_metadata_store.mark_used(TILES[:2], confirmed=True)  # changes nothing
        journal, tiles = raw.journals.open(JOURNAL), TileSet(AREA.coverage)
        journal.read_into(tiles)
        journal.close()
        assert len(tiles) == 5
        store_tiles(raw, TILES[5:8])
        sealed = raw.seal(create_report(8), at=NOW)
    assert sealed.tiles == 8
    with sink.open_reader(sealed) as reader:
        assert {entry.tile_id for entry in reader.iter_entries()} == set(TILES[:8])
        assert list(reader.verify()) == []


def test_rows_are_in_order_of_arrival_and_have_no_times(sink: RawSink) -> None:
    """A resumed download must do the same over every sink."""
    with sink.open(KEY, RUN, AREA) as raw:
        for tile in (TILES[2], TILES[0], TILES[1], TILES[2]):
            store_tiles(raw, [tile], validators=TileValidators(etag='"1"'))
    sink.clock.advance(3_600.0)  # type: ignore[attr-defined]  # of both
    with sink.open(KEY, RUN, AREA) as raw:
        rows = list(raw.tile_metadata_store.query_by_bbox(AREA.bbox, AREA.zoom_levels))
        assert [row.tile_id for row in rows] == [TILES[0], TILES[1], TILES[2]]
        assert {row.validators for row in rows} == {None}
        later = NOW + timedelta(hours=1)
        assert {(row.stored_at, row.last_used_at) for row in rows} == {(later, later)}
        assert raw.tile_metadata_store.get_metadata(TILES[0]) == rows[0]
        assert raw.tile_metadata_store.find_stored([TILES[0]]) == {TILES[0]: rows[0]}


def test_older_version_that_arrives_last_is_the_valid_one(sink: RawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        for days in (1, 2):
            store_tiles(raw, TILES[:1], produced_at=NOW - timedelta(days=days))
        found = raw.tile_metadata_store.get_metadata(TILES[0])
        assert found is not None
        assert found.produced_at == NOW - timedelta(days=2)


def test_duplicate_tile_is_stored_once(sink: RawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:5])
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[3:7])
        store_tiles(raw, TILES[4:5])
        assert raw.tile_metadata_store.get_metadata(TILES[4]) is not None
        sealed = raw.seal(create_report(7), at=NOW)
    with sink.open_reader(sealed) as reader:
        assert sorted(entry.tile_id for entry in reader.iter_entries()) == TILES[:7]
        assert list(reader.verify()) == []


def test_raw_partition_can_be_open_only_once(sink: RawSink) -> None:
    with sink.open(KEY, RUN, AREA) as raw:
        raw.lock.check_held()
        with pytest.raises(CacheLockError), sink.open(KEY, RUN, AREA):
            pass
        with sink.open(KEY, RunId("run-2"), AREA):
            pass  # another run is another partition
    with sink.open(KEY, RUN, AREA):
        pass


def test_reopening_with_different_area_is_rejected(sink: RawSink) -> None:
    with sink.open(KEY, RUN, AREA):
        pass
    other = evolve(AREA, sector_class=SectorClass.ACTIVE_CONFLICT)
    for area in (other, evolve(AREA, zoom_levels=(13,))):
        with (
            pytest.raises(
                InvalidValueError, match="area: differs from the area that run run-1 started with"
            ),
            sink.open(KEY, RUN, area),
        ):
            pass


def test_empty_partition_can_be_sealed_and_read(sink: RawSink) -> None:
    sealed = seal(sink, [])
    assert (sealed.tiles, sealed.size_bytes) == (0, 0)
    assert list_damages(sink, sealed) == []


def test_freshness_rule_is_applied_on_insert(sink: RawSink) -> None:
    area = evolve(AREA, sector_class=SectorClass.ACTIVE_CONFLICT)
    with sink.open(KEY, RUN, area) as raw:
        tile = NewTile(
            tile_id=TILES[0],
            flight_id=RUN,
            produced_at=NOW - 400 * DAY,
            resolution_m_per_px=0.6,
            sector_class=SectorClass.ACTIVE_CONFLICT,
            blob=raw.tile_store.write_tile(TILES[0], b"old"),
        )
        with pytest.raises(FreshnessRejectionError):
            raw.tile_metadata_store.insert_metadata(tile)
        rear = evolve(tile, sector_class=SectorClass.STABLE_REAR)
        label = raw.tile_metadata_store.insert_metadata(rear)
        assert label is FreshnessLabel.DOWNGRADED
        sealed = raw.seal(create_report(1), at=NOW)
    with sink.open_reader(sealed) as reader:
        (entry,) = reader.iter_entries()
    assert entry.freshness is FreshnessLabel.DOWNGRADED


def test_times_are_stored_in_utc(sink: RawSink) -> None:
    east = timezone(timedelta(hours=3))
    with sink.open(KEY, RUN, AREA) as raw:
        blob = raw.tile_store.write_tile(TILES[0], b"tile")
        raw.tile_store.flush()
        raw.tile_metadata_store.insert_metadata(
            NewTile(
                tile_id=TILES[0],
                flight_id=RUN,
                produced_at=datetime(2026, 10, 1, 3, tzinfo=east),
                resolution_m_per_px=0.6,
                sector_class=AREA.sector_class,
                blob=blob,
            )
        )
        raw.tile_metadata_store.flush()
        sealed = raw.seal(create_report(1), at=NOW.astimezone(east))
    assert sealed.sealed_at.utcoffset() == timedelta(0)
    with sink.open_reader(sealed) as reader:
        (entry,) = reader.iter_entries()
    assert entry.produced_at == datetime(2026, 10, 1, tzinfo=UTC)


def test_invalid_report_is_rejected_and_nothing_is_sealed(sink: RawSink) -> None:
    no_op = DownloadBatchReport.for_no_op(
        flight_id=RUN, request_hash="0123456789abcdef", tiles_journaled=3
    )
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        with pytest.raises(InvalidValueError, match=r"PartitionHeader\.tally"):
            raw.seal(no_op, at=NOW)
    assert sink.find(KEY, RUN) is None
    assert seal(sink, TILES[3:5]).tiles == 5


@pytest.mark.parametrize(
    ("field", "value"), [("manifest_sha256", "0" * 64), ("tiles", 7), ("run_id", "run-9")]
)
def test_reader_rejects_mismatched_sealed_partition(sink: RawSink, field: str, value: Any) -> None:
    sealed = seal(sink)
    with (
        pytest.raises(InvalidStateError, match="is missing or has changed since it was sealed"),
        sink.open_reader(evolve(sealed, **{field: value})),
    ):
        pass


@pytest.mark.parametrize("run_id", ["", ".", "..", "../x", "/x", "a/b", ".x", "a\0b", "x" * 65, 7])
def test_invariant_26_invalid_run_id_is_rejected(sink: RawSink, run_id: Any) -> None:
    with pytest.raises(InvalidValueError, match="run_id: is not a plain name"):
        sink.find(KEY, run_id)
    with (
        pytest.raises(InvalidValueError, match="run_id: is not a plain name"),
        sink.open(KEY, run_id, AREA),
    ):
        pass


def test_sha256_mismatch_raises_damaged(sink: RawSink) -> None:
    sealed = seal(sink, TILES[:2])
    with sink.open_reader(sealed) as reader:
        entry = next(iter(reader.iter_entries()))
        forged = evolve(entry, blob=evolve(entry.blob, sha256="0" * 64))
        with pytest.raises(TileManagerError, match="is damaged"):
            reader.read_tile(forged)


# Dates and newest runs


def test_imagery_date_is_recorded_and_ages_are_judged_at_that_date(sink: RawSink) -> None:
    past = NOW - timedelta(days=700)
    with sink.open(KEY, RUN, AREA, imagery_date=past.date()) as raw:
        blob = raw.tile_store.write_tile(TILES[0], tile_content(TILES[0]))
        tile = NewTile(
            tile_id=TILES[0],
            flight_id=RUN,
            produced_at=past,
            resolution_m_per_px=0.6,
            sector_class=AREA.sector_class,
            blob=blob,
        )
        assert raw.tile_metadata_store.insert_metadata(tile) is FreshnessLabel.FRESH
        sealed = raw.seal(create_report(1), at=NOW)
    with sink.open_reader(sealed) as reader:
        assert reader.header.imagery_date == past.date()


def test_newest_run_with_raw_data_is_found(sink: RawSink) -> None:
    assert sink.find_newest(KEY) is None
    for run_id, later in ((RunId("run-b"), 2), (RunId("run-c"), 1)):
        with sink.open(KEY, run_id, AREA) as raw:
            store_tiles(raw, TILES[:2])
            raw.seal(create_report(2, run_id=run_id), at=NOW + timedelta(hours=later))
    with sink.open(KEY, RunId("run-a"), AREA) as raw:  # not sealed
        store_tiles(raw, TILES[:1])
    newest = sink.find_newest(KEY)
    assert newest is not None
    assert newest.run_id == "run-b"
    other = evolve(KEY, query_name="other")
    assert sink.find_newest(other) is None
