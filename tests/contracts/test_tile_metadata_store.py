"""What every store of tile metadata must do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileferry.adapters.memory import ManualClock, MemoryTileTables
from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.application.ports.tiles import SegmentIndex, TileMetadataStore
from tileferry.domain.errors import (
    FreshnessRejectionError,
    IllegalTransitionError,
    TileNotFoundError,
)
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    FreshnessRule,
    NewTile,
    NewTiles,
    SectorClass,
    TileId,
    TileMetadata,
    TileValidators,
    VotingStatus,
    replaces,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TILE = TileId(source="sat", zoom=15, x=19_000, y=11_000)


@frozen
class MetadataEnv:
    """A store and its index, which see the same tiles."""

    store: TileMetadataStore
    index: SegmentIndex


@pytest.fixture(params=["memory", "postgres"])
def metadata_env(request: pytest.FixtureRequest) -> MetadataEnv:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        memory = MemoryTileMetadataStore(clock=clock)
        return MetadataEnv(memory, memory)
    database: Database = request.getfixturevalue("database")
    return MetadataEnv(
        PostgresTileMetadataStore(database=database, clock=clock), PostgresBlobIndex(database)
    )


_offsets = iter(range(1, 10**9))


def new_tile(tile_id: TileId = TILE, **changes: Any) -> NewTile:
    """A fresh tile whose blob lies where no other lies."""
    blob = BlobRef(location=(1, next(_offsets)), length=20_000, sha256="ab" * 32)
    tile = NewTile(
        tile_id=tile_id,
        flight_id="F1",
        produced_at=NOW - DAY,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.ACTIVE_CONFLICT,
        blob=blob,
    )
    return evolve(tile, **changes)


def insert_tiles(kept: MetadataEnv, *tiles: NewTile) -> None:
    for tile in tiles:
        kept.store.insert_metadata(tile)
    kept.store.flush()


def get_row(kept: MetadataEnv, tile_id: TileId = TILE) -> TileMetadata:
    tile = kept.store.get_metadata(tile_id)
    assert tile is not None
    return tile


def new_captured_tile(x: int = TILE.x, **changes: Any) -> NewTile:
    tile_id = evolve(TILE, source="cam", x=x)
    return new_tile(tile_id, **{"voting_status": VotingStatus.PENDING, **changes})


# Inserting


def test_store_implements_port(metadata_env: MetadataEnv) -> None:
    assert isinstance(metadata_env.store, TileMetadataStore)


def test_tile_is_visible_with_all_fields_after_flush(metadata_env: MetadataEnv) -> None:
    tile = new_tile()
    assert metadata_env.store.insert_metadata(tile) is FreshnessLabel.FRESH
    assert metadata_env.store.get_metadata(TILE) is None
    metadata_env.store.flush()
    row = get_row(metadata_env)
    assert (row.tile_id, row.flight_id, row.produced_at) == (TILE, "F1", NOW - DAY)
    assert (row.resolution_m_per_px, row.sector_class) == (0.6, SectorClass.ACTIVE_CONFLICT)
    assert (row.freshness, row.voting_status) == (FreshnessLabel.FRESH, VotingStatus.TRUSTED)
    assert (row.blob, row.upload_attempts) == (tile.blob, 0)


def test_flush_without_tiles_is_allowed(metadata_env: MetadataEnv) -> None:
    metadata_env.store.flush()


def test_stale_tile_in_active_conflict_is_rejected(metadata_env: MetadataEnv) -> None:
    with pytest.raises(FreshnessRejectionError):
        metadata_env.store.insert_metadata(new_tile(produced_at=NOW - 200 * DAY))
    metadata_env.store.flush()
    assert metadata_env.store.get_metadata(TILE) is None


def test_stale_tile_in_stable_rear_is_downgraded(metadata_env: MetadataEnv) -> None:
    stale = new_tile(produced_at=NOW - 400 * DAY, sector_class=SectorClass.STABLE_REAR)
    assert metadata_env.store.insert_metadata(stale) is FreshnessLabel.DOWNGRADED
    metadata_env.store.flush()
    assert get_row(metadata_env).freshness is FreshnessLabel.DOWNGRADED


def create_columns(*tiles: NewTile) -> NewTiles:
    parts = [NewTiles.from_tile(tile) for tile in tiles]
    columns = ["tile_ids", "produced_at", "resolutions_m_per_px", "validators"]
    columns += ["locations", "lengths", "digests"]
    joined: dict[str, Any] = {
        name: [one for part in parts for one in getattr(part, name)] for name in columns
    }
    return evolve(parts[0], **joined)


def test_several_tiles_are_inserted_together(metadata_env: MetadataEnv) -> None:
    sound = [new_tile(evolve(TILE, x=1)), new_tile(evolve(TILE, zoom=14, x=2, y=2))]
    sound.append(new_tile(evolve(TILE, source="cam", x=3), resolution_m_per_px=0.7))
    stale = new_tile(evolve(TILE, x=4), produced_at=NOW - 200 * DAY)
    *labels, error = metadata_env.store.insert_all(create_columns(*sound, stale))
    assert labels == [FreshnessLabel.FRESH] * 3
    assert isinstance(error, FreshnessRejectionError)
    assert error.tile == str(stale.tile_id)
    assert metadata_env.store.get_metadata(sound[0].tile_id) is None
    metadata_env.store.flush()
    for tile in sound:
        row = get_row(metadata_env, tile.tile_id)
        assert (row.blob, row.resolution_m_per_px) == (tile.blob, tile.resolution_m_per_px)
    assert metadata_env.store.get_metadata(stale.tile_id) is None


def test_tiles_of_two_flights_are_written_in_one_group(metadata_env: MetadataEnv) -> None:
    tiles = [new_tile(evolve(TILE, x=x), flight_id=f"F{x % 2}") for x in range(5)]
    insert_tiles(metadata_env, *tiles)
    assert [get_row(metadata_env, tile.tile_id).flight_id for tile in tiles] == [
        tile.flight_id for tile in tiles
    ]


def test_same_tile_of_two_sources_is_two_rows(metadata_env: MetadataEnv) -> None:
    other = evolve(TILE, source="other")
    insert_tiles(metadata_env, new_tile(), new_tile(other))
    assert get_row(metadata_env).blob != get_row(metadata_env, other).blob


def test_newer_version_replaces_tile_and_older_does_not(metadata_env: MetadataEnv) -> None:
    first, newer = new_tile(), new_tile(produced_at=NOW)
    insert_tiles(metadata_env, first)
    insert_tiles(metadata_env, newer)
    assert get_row(metadata_env).blob == newer.blob
    insert_tiles(metadata_env, new_tile(produced_at=NOW - 2 * DAY))
    assert get_row(metadata_env).blob == newer.blob
    again = new_tile(produced_at=NOW)
    insert_tiles(metadata_env, again)
    assert get_row(metadata_env).blob == again.blob


def test_newer_of_two_versions_in_one_group_wins(metadata_env: MetadataEnv) -> None:
    newer, older = new_tile(produced_at=NOW), new_tile()
    insert_tiles(metadata_env, newer, older)
    assert get_row(metadata_env).blob == newer.blob


def test_evicted_tile_is_reinserted_as_new(metadata_env: MetadataEnv) -> None:
    first, again = new_captured_tile(), new_captured_tile()
    insert_tiles(metadata_env, first)
    metadata_env.store.increment_upload_attempts(first.tile_id)
    assert metadata_env.index.forget([first.tile_id]) == [first.blob]
    assert metadata_env.store.get_metadata(first.tile_id) is None
    insert_tiles(metadata_env, again)
    assert get_row(metadata_env, again.tile_id).upload_attempts == 0


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
def test_replacement_follows_domain_rule(metadata_env: MetadataEnv, versions: list[Any]) -> None:
    metadata_env.index.forget([TILE])
    expected: BlobRef | None = None
    for flight_id, days, status, give_up in versions:
        tile = new_tile(flight_id=flight_id, produced_at=NOW - days * DAY, voting_status=status)
        existing = metadata_env.store.get_metadata(TILE)
        if existing is None or replaces(tile, existing):
            expected = tile.blob
        insert_tiles(metadata_env, tile)
        assert get_row(metadata_env).blob == expected
        if give_up and get_row(metadata_env).voting_status is VotingStatus.PENDING:
            metadata_env.store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)


# Reading


def test_stored_tiles_are_found_by_id(metadata_env: MetadataEnv) -> None:
    ids = [evolve(TILE, x=x) for x in range(5)]
    insert_tiles(metadata_env, *(new_tile(tile_id) for tile_id in ids))
    unknown, foreign = evolve(TILE, x=99), evolve(ids[0], source="other")
    found = metadata_env.store.find_stored([*ids[3:], unknown, foreign])
    assert found == {tile_id: get_row(metadata_env, tile_id) for tile_id in ids[3:]}
    assert metadata_env.store.find_stored([]) == {}
    assert metadata_env.store.freshness == FreshnessRule()


def test_confirmed_tile_keeps_its_version(metadata_env: MetadataEnv) -> None:
    validators = TileValidators(etag='W/"a\\"b,{}"', last_modified="Mon, 02 Nov 2026 10:00:00 GMT")
    insert_tiles(metadata_env, new_tile(validators=validators), new_tile(evolve(TILE, x=1)))
    stored = get_row(metadata_env)
    assert (stored.reconfirmed_at, stored.confirmed_at) == (None, stored.stored_at)
    assert (stored.validators, get_row(metadata_env, evolve(TILE, x=1)).validators) == (
        (validators, None)
    )
    metadata_env.store.mark_used([TILE, evolve(TILE, x=99)], confirmed=True)
    confirmed = get_row(metadata_env)
    assert confirmed.confirmed_at == confirmed.last_used_at >= stored.stored_at
    assert confirmed.reconfirmed_at is not None
    assert evolve(confirmed, reconfirmed_at=None, last_used_at=stored.last_used_at) == stored
    assert get_row(metadata_env, evolve(TILE, x=1)).reconfirmed_at is None
    insert_tiles(metadata_env, new_tile())
    replaced = get_row(metadata_env)
    assert (replaced.reconfirmed_at, replaced.validators) == (None, None)


def test_area_query_is_ordered_by_column(metadata_env: MetadataEnv) -> None:
    ids = [evolve(TILE, zoom=3, x=x, y=y) for x in range(8) for y in range(8)]
    insert_tiles(metadata_env, *(new_tile(tile_id) for tile_id in reversed(ids)))
    world = BBox(west=-180, south=-85, east=180, north=85)
    assert [tile.tile_id for tile in metadata_env.store.query_by_bbox(world, [3])] == ids
    east = BBox(west=0, south=0, east=180, north=85)
    found = [tile.tile_id for tile in metadata_env.store.query_by_bbox(east, [2, 3])]
    assert found == [tile for tile in ids if tile.x >= 4 and tile.y < 4]


def test_area_query_filters_source_and_crosses_antimeridian(metadata_env: MetadataEnv) -> None:
    east, west = evolve(TILE, zoom=3, x=7, y=3), evolve(TILE, zoom=3, x=0, y=3)
    insert_tiles(
        metadata_env, new_tile(east), new_tile(west), new_tile(evolve(west, source="other"))
    )
    box = BBox(west=170, south=1, east=-170, north=10)
    found = [str(tile.tile_id) for tile in metadata_env.store.query_by_bbox(box, [3])]
    assert found == ["other/3/0/3", "sat/3/0/3", "sat/3/7/3"]
    assert [t.tile_id for t in metadata_env.store.query_by_bbox(box, [3], source="sat")] == [
        west,
        east,
    ]


def test_pending_uploads_are_limited_to_flight_and_ordered(metadata_env: MetadataEnv) -> None:
    mine = [new_captured_tile(x) for x in (5, 3, 9)]
    insert_tiles(metadata_env, *mine, new_captured_tile(4, flight_id="F2"), new_tile())
    found = [tile.tile_id.x for tile in metadata_env.store.pending_uploads("F1")]
    assert found == [3, 5, 9]


def test_pending_uploads_can_be_acknowledged_while_iterating(metadata_env: MetadataEnv) -> None:
    insert_tiles(metadata_env, *(new_captured_tile(x) for x in range(30)))
    seen = []
    for tile in metadata_env.store.pending_uploads("F1"):
        metadata_env.store.mark_uploaded(tile.tile_id)
        seen.append(tile.tile_id.x)
    assert seen == list(range(30))
    assert list(metadata_env.store.pending_uploads("F1")) == []


# Voting


def test_acknowledged_tile_is_uploaded(metadata_env: MetadataEnv) -> None:
    tile = new_captured_tile()
    insert_tiles(metadata_env, tile)
    metadata_env.store.mark_uploaded(tile.tile_id)
    metadata_env.store.mark_uploaded(tile.tile_id)
    assert get_row(metadata_env, tile.tile_id).voting_status is VotingStatus.UPLOADED
    metadata_env.store.update_voting_status(tile.tile_id, VotingStatus.TRUSTED)
    assert get_row(metadata_env, tile.tile_id).voting_status is VotingStatus.TRUSTED


def test_acknowledging_several_tiles_is_atomic(metadata_env: MetadataEnv) -> None:
    tiles = [new_captured_tile(x) for x in range(4)]
    insert_tiles(metadata_env, *tiles)
    ids = [tile.tile_id for tile in tiles]
    metadata_env.store.update_voting_status(ids[3], VotingStatus.UPLOAD_GIVEUP)
    with pytest.raises(IllegalTransitionError):
        metadata_env.store.mark_uploaded(*ids)
    with pytest.raises(TileNotFoundError):
        metadata_env.store.mark_uploaded(ids[0], TileId(source="cam", zoom=3, x=1, y=1))
    assert get_row(metadata_env, ids[0]).voting_status is VotingStatus.PENDING
    metadata_env.store.mark_uploaded(*ids[:3])
    metadata_env.store.mark_uploaded()
    assert list(metadata_env.store.pending_uploads("F1")) == []


@pytest.mark.parametrize("target", [status for status in VotingStatus if status != "upload_giveup"])
def test_giveup_cannot_be_undone(metadata_env: MetadataEnv, target: VotingStatus) -> None:
    tile = new_captured_tile()
    insert_tiles(metadata_env, tile)
    metadata_env.store.update_voting_status(tile.tile_id, VotingStatus.UPLOAD_GIVEUP)
    with pytest.raises(IllegalTransitionError):
        metadata_env.store.update_voting_status(tile.tile_id, target)
    insert_tiles(metadata_env, new_captured_tile(produced_at=NOW))
    assert get_row(metadata_env, tile.tile_id).voting_status is VotingStatus.UPLOAD_GIVEUP
    assert list(metadata_env.store.pending_uploads("F1")) == []


def test_increment_returns_new_count(metadata_env: MetadataEnv) -> None:
    tile = new_captured_tile()
    insert_tiles(metadata_env, tile)
    assert [metadata_env.store.increment_upload_attempts(tile.tile_id) for _ in range(3)] == [
        1,
        2,
        3,
    ]
    assert get_row(metadata_env, tile.tile_id).upload_attempts == 3


def test_invariant_9_repeated_report_of_attempt_counts_once(metadata_env: MetadataEnv) -> None:
    tile = new_captured_tile()
    insert_tiles(metadata_env, tile)
    reported = ["a", "a", "b", "b", None, None, "b"]
    counts = [metadata_env.store.increment_upload_attempts(tile.tile_id, name) for name in reported]
    assert counts == [1, 1, 2, 2, 3, 4, 5]


def test_newer_version_keeps_upload_attempts(metadata_env: MetadataEnv) -> None:
    tile = new_captured_tile()
    insert_tiles(metadata_env, tile)
    metadata_env.store.increment_upload_attempts(tile.tile_id)
    insert_tiles(metadata_env, new_captured_tile(produced_at=NOW))
    assert get_row(metadata_env, tile.tile_id).upload_attempts == 1


def test_change_of_unknown_tile_raises_not_found(metadata_env: MetadataEnv) -> None:
    for change in (
        metadata_env.store.mark_uploaded,
        metadata_env.store.increment_upload_attempts,
        lambda tile: metadata_env.store.update_voting_status(tile, VotingStatus.UPLOADED),
    ):
        with pytest.raises(TileNotFoundError, match=str(TILE)):
            change(TILE)


def test_store_without_upload_attempts_raises_not_implemented() -> None:
    older = object()
    inherited: Any = TileMetadataStore.increment_upload_attempts
    with pytest.raises(NotImplementedError, match="object does not count upload attempts"):
        inherited(older, TILE)


# As the index of the bytes


def test_index_locates_only_visible_blobs(metadata_env: MetadataEnv) -> None:
    tile = new_tile()
    metadata_env.store.insert_metadata(tile)
    assert metadata_env.index.locate(TILE) is None
    metadata_env.store.flush()
    assert metadata_env.index.locate(TILE) == tile.blob
    metadata_env.index.forget([TILE])
    assert metadata_env.index.locate(TILE) is None
    assert metadata_env.index.forget([TILE]) == []


def test_index_returns_highest_referenced_segment(metadata_env: MetadataEnv) -> None:
    assert metadata_env.index.get_last_segment() == 0
    for x, segment in ((1, 4), (2, 9), (3, 2)):
        blob = BlobRef(location=(segment, 1), length=1, sha256="ab" * 32)
        insert_tiles(metadata_env, new_tile(evolve(TILE, x=x), blob=blob))
    assert metadata_env.index.get_last_segment() == 9


def test_the_index_pages_through_a_segment(metadata_env: MetadataEnv) -> None:
    tiles = [new_tile(evolve(TILE, x=x)) for x in range(5)]
    other = new_tile(evolve(TILE, x=9), blob=BlobRef(location=(2, 8), length=7, sha256="cd" * 32))
    insert_tiles(metadata_env, *tiles, other)
    expected = [(tile.tile_id, tile.blob) for tile in tiles]
    page = metadata_env.index.list_blobs(1, after_offset=-1, limit=3)
    assert list(page) == expected[:3]
    assert (
        list(metadata_env.index.list_blobs(1, after_offset=page[-1][1].location[1], limit=3))
        == expected[3:]
    )
    assert sorted(metadata_env.index.sum_live_bytes()) == [(1, 100_000), (2, 7)]


def test_blob_move_applies_only_if_location_is_unchanged(metadata_env: MetadataEnv) -> None:
    tile = new_tile()
    insert_tiles(metadata_env, tile)
    there = evolve(tile.blob, location=(7, 3))
    elsewhere = evolve(tile.blob, location=(6, tile.blob.location[1]))
    assert metadata_env.index.move([(TILE, elsewhere, there)]) == 0
    assert metadata_env.index.move([]) == 0
    assert metadata_env.index.move([(TILE, tile.blob, there)]) == 1
    assert metadata_env.index.locate(TILE) == there


def test_detached_rows_are_written_without_later_rows(metadata_env: MetadataEnv) -> None:
    earlier, later = new_tile(), new_tile(evolve(TILE, x=1))
    metadata_env.store.insert_metadata(earlier)
    write = metadata_env.store.detach()
    metadata_env.store.insert_metadata(later)
    assert metadata_env.index.locate(TILE) is None
    write()
    assert metadata_env.index.locate(TILE) == earlier.blob
    assert metadata_env.index.locate(later.tile_id) is None
    metadata_env.store.flush()
    assert metadata_env.index.locate(later.tile_id) == later.blob


def test_detach_without_rows_is_allowed(metadata_env: MetadataEnv) -> None:
    metadata_env.store.detach()()
    assert metadata_env.store.get_metadata(TILE) is None


def test_future_dated_tile_can_be_replaced(metadata_env: MetadataEnv) -> None:
    far_ahead = NOW + 3_000 * DAY
    insert_tiles(
        metadata_env, new_tile(produced_at=far_ahead, sector_class=SectorClass.STABLE_REAR)
    )
    assert get_row(metadata_env).produced_at == far_ahead
    true = new_tile()
    insert_tiles(metadata_env, true)
    assert (get_row(metadata_env).blob, get_row(metadata_env).produced_at) == (true.blob, NOW - DAY)


def test_times_of_a_tile_are_those_of_the_database(request: pytest.FixtureRequest) -> None:
    """The clock of a client may be wrong; the order of eviction must not depend on it."""
    database: Database = request.getfixturevalue("database")
    tables = MemoryTileTables(clock=ManualClock(NOW.timestamp()))
    late, early = ManualClock((NOW + DAY).timestamp()), ManualClock((NOW - DAY).timestamp())
    clients: list[list[TileMetadataStore]] = [
        [MemoryTileMetadataStore(clock=clock, tables=tables) for clock in (late, early)],
        [PostgresTileMetadataStore(database=database, clock=clock) for clock in (late, early)],
    ]
    for first, second in clients:
        first.insert_metadata(new_tile())
        first.flush()
        stored = first.get_metadata(TILE)
        second.mark_used([TILE], confirmed=True)
        used = second.get_metadata(TILE)
        assert stored is not None
        assert used is not None
        assert timedelta() <= used.last_used_at - stored.stored_at < DAY / 2
        assert used.confirmed_at == used.last_used_at
