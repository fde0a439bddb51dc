"""What every store of tile metadata must do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.memory.tile_metadata import MemoryTileMetadataStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import BlobIndex
from tileferry.domain.errors import (
    FreshnessRejectionError,
    IllegalTransitionError,
    TileNotFoundError,
)
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    NewTile,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
    replaces,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TILE = TileId(source="sat", zoom=15, x=19_000, y=11_000)


@frozen
class Kept:
    """A store and its index, which see the same tiles."""

    store: TileMetadataStore
    index: BlobIndex


@pytest.fixture(params=["memory", "postgres"])
def kept(request: pytest.FixtureRequest) -> Kept:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        memory = MemoryTileMetadataStore(clock=clock)
        return Kept(memory, memory)
    database: Database = request.getfixturevalue("database")
    return Kept(
        PostgresTileMetadataStore(database=database, clock=clock), PostgresBlobIndex(database)
    )


_offsets = iter(range(1, 10**9))


def new_tile(tile_id: TileId = TILE, **changes: Any) -> NewTile:
    """A fresh tile whose blob lies where no other lies."""
    blob = BlobRef(segment=1, offset=next(_offsets), length=20_000, sha256="ab" * 32)
    tile = NewTile(
        tile_id=tile_id,
        flight_id="F1",
        produced_at=NOW - DAY,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.ACTIVE_CONFLICT,
        blob=blob,
    )
    return evolve(tile, **changes)


def stored(kept: Kept, *tiles: NewTile) -> None:
    for tile in tiles:
        kept.store.insert_metadata(tile)
    kept.store.flush()


def known(kept: Kept, tile_id: TileId = TILE) -> TileMetadata:
    tile = kept.store.get_metadata(tile_id)
    assert tile is not None
    return tile


def captured(x: int = TILE.x, **changes: Any) -> NewTile:
    tile_id = evolve(TILE, source="cam", x=x)
    return new_tile(tile_id, **{"voting_status": VotingStatus.PENDING, **changes})


# Inserting


def test_it_is_a_store(kept: Kept) -> None:
    assert isinstance(kept.store, TileMetadataStore)


def test_a_tile_is_visible_after_flush_with_all_that_was_said(kept: Kept) -> None:
    tile = new_tile()
    assert kept.store.insert_metadata(tile) is FreshnessLabel.FRESH
    assert kept.store.get_metadata(TILE) is None
    kept.store.flush()
    row = known(kept)
    assert (row.tile_id, row.flight_id, row.produced_at) == (TILE, "F1", NOW - DAY)
    assert (row.resolution_m_per_px, row.sector_class) == (0.6, SectorClass.ACTIVE_CONFLICT)
    assert (row.freshness, row.voting_status) == (FreshnessLabel.FRESH, VotingStatus.TRUSTED)
    assert (row.blob, row.upload_attempts) == (tile.blob, 0)


def test_flushing_nothing_is_fine(kept: Kept) -> None:
    kept.store.flush()


def test_spec5_ac3_a_stale_tile_in_active_conflict_is_refused(kept: Kept) -> None:
    with pytest.raises(FreshnessRejectionError):
        kept.store.insert_metadata(new_tile(produced_at=NOW - 200 * DAY))
    kept.store.flush()
    assert kept.store.get_metadata(TILE) is None


def test_spec5_ac4_a_stale_tile_in_the_rear_is_downgraded(kept: Kept) -> None:
    stale = new_tile(produced_at=NOW - 400 * DAY, sector_class=SectorClass.STABLE_REAR)
    assert kept.store.insert_metadata(stale) is FreshnessLabel.DOWNGRADED
    kept.store.flush()
    assert known(kept).freshness is FreshnessLabel.DOWNGRADED


def test_a_tile_of_two_sources_is_two_tiles(kept: Kept) -> None:
    other = evolve(TILE, source="other")
    stored(kept, new_tile(), new_tile(other))
    assert known(kept).blob != known(kept, other).blob


def test_a_newer_version_takes_the_place_and_an_older_one_does_not(kept: Kept) -> None:
    first, newer = new_tile(), new_tile(produced_at=NOW)
    stored(kept, first)
    stored(kept, newer)
    assert known(kept).blob == newer.blob
    stored(kept, new_tile(produced_at=NOW - 2 * DAY))
    assert known(kept).blob == newer.blob
    again = new_tile(produced_at=NOW)
    stored(kept, again)
    assert known(kept).blob == again.blob


def test_of_two_versions_in_one_group_the_newer_stays(kept: Kept) -> None:
    newer, older = new_tile(produced_at=NOW), new_tile()
    stored(kept, newer, older)
    assert known(kept).blob == newer.blob


def test_a_tile_that_was_evicted_comes_back_as_new(kept: Kept) -> None:
    first, again = captured(), captured()
    stored(kept, first)
    kept.store.increment_upload_attempts(first.tile_id)
    assert kept.index.forget([first.tile_id]) == [first.blob]
    assert kept.store.get_metadata(first.tile_id) is None
    stored(kept, again)
    assert known(kept, again.tile_id).upload_attempts == 0


STATUSES = [VotingStatus.PENDING, VotingStatus.TRUSTED]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["F1", "F2"]),
            st.integers(0, 2),
            st.sampled_from(STATUSES),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_which_version_stays_is_the_domains_rule(kept: Kept, versions: list[Any]) -> None:
    kept.index.forget([TILE])
    expected: BlobRef | None = None
    for flight_id, days, status, give_up in versions:
        tile = new_tile(flight_id=flight_id, produced_at=NOW - days * DAY, voting_status=status)
        existing = kept.store.get_metadata(TILE)
        if existing is None or replaces(tile, existing):
            expected = tile.blob
        stored(kept, tile)
        assert known(kept).blob == expected
        if give_up and known(kept).voting_status is VotingStatus.PENDING:
            kept.store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)


# Reading


def test_an_area_is_read_column_by_column(kept: Kept) -> None:
    ids = [evolve(TILE, zoom=3, x=x, y=y) for x in range(8) for y in range(8)]
    stored(kept, *(new_tile(tile_id) for tile_id in reversed(ids)))
    world = BBox(west=-180, south=-85, east=180, north=85)
    assert [tile.tile_id for tile in kept.store.query_by_bbox(world, [3])] == ids
    east = BBox(west=0, south=0, east=180, north=85)
    found = [tile.tile_id for tile in kept.store.query_by_bbox(east, [2, 3])]
    assert found == [tile for tile in ids if tile.x >= 4 and tile.y < 4]


def test_an_area_can_be_read_for_one_source_and_across_the_antimeridian(kept: Kept) -> None:
    east, west = evolve(TILE, zoom=3, x=7, y=3), evolve(TILE, zoom=3, x=0, y=3)
    stored(kept, new_tile(east), new_tile(west), new_tile(evolve(west, source="other")))
    box = BBox(west=170, south=1, east=-170, north=10)
    found = [str(tile.tile_id) for tile in kept.store.query_by_bbox(box, [3])]
    assert found == ["other/3/0/3", "sat/3/0/3", "sat/3/7/3"]
    assert [t.tile_id for t in kept.store.query_by_bbox(box, [3], source="sat")] == [west, east]


def test_pending_uploads_are_those_of_the_flight_in_order(kept: Kept) -> None:
    mine = [captured(x) for x in (5, 3, 9)]
    stored(kept, *mine, captured(4, flight_id="F2"), new_tile())
    found = [tile.tile_id.x for tile in kept.store.pending_uploads("F1")]
    assert found == [3, 5, 9]


def test_pending_uploads_may_be_acknowledged_while_they_are_read(kept: Kept) -> None:
    stored(kept, *(captured(x) for x in range(30)))
    seen = []
    for tile in kept.store.pending_uploads("F1"):
        kept.store.mark_uploaded(tile.tile_id)
        seen.append(tile.tile_id.x)
    assert seen == list(range(30))
    assert list(kept.store.pending_uploads("F1")) == []


# Voting


def test_an_acknowledged_tile_is_uploaded_and_no_longer_pending(kept: Kept) -> None:
    tile = captured()
    stored(kept, tile)
    kept.store.mark_uploaded(tile.tile_id)
    kept.store.mark_uploaded(tile.tile_id)
    assert known(kept, tile.tile_id).voting_status is VotingStatus.UPLOADED
    kept.store.update_voting_status(tile.tile_id, VotingStatus.TRUSTED)
    assert known(kept, tile.tile_id).voting_status is VotingStatus.TRUSTED


def test_several_are_acknowledged_together_or_not_at_all(kept: Kept) -> None:
    tiles = [captured(x) for x in range(4)]
    stored(kept, *tiles)
    ids = [tile.tile_id for tile in tiles]
    kept.store.update_voting_status(ids[3], VotingStatus.UPLOAD_GIVEUP)
    with pytest.raises(IllegalTransitionError):
        kept.store.mark_uploaded(*ids)
    with pytest.raises(TileNotFoundError):
        kept.store.mark_uploaded(ids[0], TileId(source="cam", zoom=3, x=1, y=1))
    assert known(kept, ids[0]).voting_status is VotingStatus.PENDING
    kept.store.mark_uploaded(*ids[:3])
    kept.store.mark_uploaded()
    assert list(kept.store.pending_uploads("F1")) == []


@pytest.mark.parametrize("target", [status for status in VotingStatus if status != "upload_giveup"])
def test_nothing_moves_a_giveup_back(kept: Kept, target: VotingStatus) -> None:
    tile = captured()
    stored(kept, tile)
    kept.store.update_voting_status(tile.tile_id, VotingStatus.UPLOAD_GIVEUP)
    with pytest.raises(IllegalTransitionError):
        kept.store.update_voting_status(tile.tile_id, target)
    stored(kept, captured(produced_at=NOW))
    assert known(kept, tile.tile_id).voting_status is VotingStatus.UPLOAD_GIVEUP
    assert list(kept.store.pending_uploads("F1")) == []


def test_spec1_ac7_increment_returns_the_new_count(kept: Kept) -> None:
    tile = captured()
    stored(kept, tile)
    assert [kept.store.increment_upload_attempts(tile.tile_id) for _ in range(3)] == [1, 2, 3]
    assert known(kept, tile.tile_id).upload_attempts == 3


def test_invariant_9_an_attempt_is_counted_once_however_often_it_is_reported(kept: Kept) -> None:
    tile = captured()
    stored(kept, tile)
    reported = ["a", "a", "b", "b", None, None, "b"]
    counts = [kept.store.increment_upload_attempts(tile.tile_id, name) for name in reported]
    assert counts == [1, 1, 2, 2, 3, 4, 5]


def test_a_newer_version_keeps_the_count(kept: Kept) -> None:
    tile = captured()
    stored(kept, tile)
    kept.store.increment_upload_attempts(tile.tile_id)
    stored(kept, captured(produced_at=NOW))
    assert known(kept, tile.tile_id).upload_attempts == 1


def test_a_tile_that_is_not_there_is_named(kept: Kept) -> None:
    for change in (
        kept.store.mark_uploaded,
        kept.store.increment_upload_attempts,
        lambda tile: kept.store.update_voting_status(tile, VotingStatus.UPLOADED),
    ):
        with pytest.raises(TileNotFoundError, match=str(TILE)):
            change(TILE)


def test_a_store_that_predates_the_count_refuses_it() -> None:
    older = object()
    inherited: Any = TileMetadataStore.increment_upload_attempts
    with pytest.raises(NotImplementedError, match="object does not count upload attempts"):
        inherited(older, TILE)


# As the index of the bytes


def test_the_index_knows_visible_blobs_only(kept: Kept) -> None:
    tile = new_tile()
    kept.store.insert_metadata(tile)
    assert kept.index.locate(TILE) is None
    kept.store.flush()
    assert kept.index.locate(TILE) == tile.blob
    kept.index.forget([TILE])
    assert kept.index.locate(TILE) is None
    assert kept.index.forget([TILE]) == []


def test_the_index_knows_the_highest_segment_that_a_row_names(kept: Kept) -> None:
    assert kept.index.last_segment() == 0
    for x, segment in ((1, 4), (2, 9), (3, 2)):
        blob = BlobRef(segment=segment, offset=1, length=1, sha256="ab" * 32)
        stored(kept, new_tile(evolve(TILE, x=x), blob=blob))
    assert kept.index.last_segment() == 9


def test_the_index_pages_through_a_segment(kept: Kept) -> None:
    tiles = [new_tile(evolve(TILE, x=x)) for x in range(5)]
    other = new_tile(
        evolve(TILE, x=9), blob=BlobRef(segment=2, offset=8, length=7, sha256="cd" * 32)
    )
    stored(kept, *tiles, other)
    expected = [(tile.tile_id, tile.blob) for tile in tiles]
    page = kept.index.blobs_in(1, after_offset=-1, limit=3)
    assert list(page) == expected[:3]
    assert list(kept.index.blobs_in(1, after_offset=page[-1][1].offset, limit=3)) == expected[3:]
    assert sorted(kept.index.live_bytes()) == [(1, 100_000), (2, 7)]


def test_a_move_counts_only_where_the_tile_still_is(kept: Kept) -> None:
    tile = new_tile()
    stored(kept, tile)
    there = evolve(tile.blob, segment=7, offset=3)
    elsewhere = evolve(tile.blob, segment=6)
    assert kept.index.move([(TILE, elsewhere, there)]) == 0
    assert kept.index.move([]) == 0
    assert kept.index.move([(TILE, tile.blob, there)]) == 1
    assert kept.index.locate(TILE) == there


def test_what_was_set_aside_becomes_visible_without_what_came_later(kept: Kept) -> None:
    earlier, later = new_tile(), new_tile(evolve(TILE, x=1))
    kept.store.insert_metadata(earlier)
    write = kept.store.detach()
    kept.store.insert_metadata(later)
    assert kept.index.locate(TILE) is None
    write()
    assert kept.index.locate(TILE) == earlier.blob
    assert kept.index.locate(later.tile_id) is None
    kept.store.flush()
    assert kept.index.locate(later.tile_id) == later.blob


def test_setting_nothing_aside_is_no_error(kept: Kept) -> None:
    kept.store.detach()()
    assert kept.store.get_metadata(TILE) is None


def test_a_date_that_cannot_be_true_does_not_keep_a_tile_for_good(kept: Kept) -> None:
    far_ahead = NOW + 3_000 * DAY
    stored(kept, new_tile(produced_at=far_ahead, sector_class=SectorClass.STABLE_REAR))
    assert known(kept).produced_at == far_ahead
    true = new_tile()
    stored(kept, true)
    assert (known(kept).blob, known(kept).produced_at) == (true.blob, NOW - DAY)
