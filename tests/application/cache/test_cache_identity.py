"""A cache and a database are bound by their first use, and to no other from then on."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, evolve

from tileferry.adapters.memory import (
    ManualClock,
    MemoryCacheBindings,
    MemoryCacheLedger,
    MemoryCacheMark,
    MemoryTileMetadataStore,
)
from tileferry.application.cache.cache_identity import CacheIdentity
from tileferry.domain.errors import ForeignCacheError
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId
from tileferry.domain.tiles.bound_cache import BoundCache, CacheFit, CacheId

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
OURS, THEIRS = CacheId("0" * 32), CacheId("1" * 32)
HERE = "laptop:/cache"
ELSEWHERE = BoundCache(cache_id=THEIRS, place="server:/cache")


@pytest.fixture
def tiles() -> MemoryTileMetadataStore:
    return MemoryTileMetadataStore(clock=ManualClock(NOW.timestamp()))


@pytest.fixture
def identity(tiles: MemoryTileMetadataStore) -> CacheIdentity:
    return CacheIdentity(
        mark=MemoryCacheMark(),
        bindings=MemoryCacheBindings(),
        ledger=MemoryCacheLedger(tiles=tiles),
        place=HERE,
        new_cache_id=lambda: OURS,
    )


def fill(tiles: MemoryTileMetadataStore) -> None:
    tiles.insert_metadata(
        NewTile(
            tile_id=TileId(source="sat", zoom=1, x=0, y=0),
            flight_id="F1",
            produced_at=NOW - timedelta(days=1),
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(segment=1, offset=16, length=0, sha256="ab" * 32),
        )
    )
    tiles.flush()


def test_the_first_use_binds_also_where_tiles_were_stored_before_there_were_bindings(
    identity: CacheIdentity, tiles: MemoryTileMetadataStore
) -> None:
    fill(tiles)
    assert identity.check() is CacheFit.FREE
    assert (identity.mark.read(), identity.bindings.bound()) == (None, None)
    identity.ensure()
    assert identity.mark.read() == OURS
    assert identity.bindings.bound() == BoundCache(cache_id=OURS, place=HERE)
    assert identity.check() is CacheFit.BOUND
    identity.ensure()


def test_a_mark_that_no_row_knows_is_bound_by_the_next_use(identity: CacheIdentity) -> None:
    identity.mark.write(THEIRS)
    identity.ensure()
    assert identity.bindings.bound() == BoundCache(cache_id=THEIRS, place=HERE)


def test_a_cache_that_was_moved_is_known_by_its_new_place(
    identity: CacheIdentity, tiles: MemoryTileMetadataStore
) -> None:
    identity.ensure()
    fill(tiles)
    evolve(identity, place="laptop:/moved").ensure()
    assert identity.bindings.bound() == BoundCache(cache_id=OURS, place="laptop:/moved")


@pytest.mark.parametrize(
    ("own", "said"), [(None, "has lost its files"), (OURS, "is another cache")]
)
def test_another_cache_is_refused_and_nothing_changes(
    identity: CacheIdentity, tiles: MemoryTileMetadataStore, own: CacheId | None, said: str
) -> None:
    identity.bindings.bind(ELSEWHERE, instead_of=None)
    if own is not None:
        identity.mark.write(own)
    fill(tiles)
    for attempt in (identity.check, identity.ensure):
        with pytest.raises(ForeignCacheError, match=said) as refused:
            attempt()
        assert (refused.value.place, refused.value.bound_place) == (HERE, "server:/cache")
    assert (identity.mark.read(), identity.bindings.bound()) == (own, ELSEWHERE)


def test_space_that_is_promised_to_another_cache_is_as_good_as_tiles(
    identity: CacheIdentity,
) -> None:
    identity.bindings.bind(ELSEWHERE, instead_of=None)
    with identity.ledger.exclusively() as books:
        books.reserve("server", 1)
    with pytest.raises(ForeignCacheError):
        identity.ensure()


def test_a_database_without_tiles_is_bound_anew(identity: CacheIdentity) -> None:
    identity.bindings.bind(ELSEWHERE, instead_of=None)
    assert identity.check() is CacheFit.FREE
    identity.ensure()
    assert identity.bindings.bound() == BoundCache(cache_id=OURS, place=HERE)


@define
class Rivalry(MemoryCacheBindings):
    """Somebody else is always a little faster."""

    def bind(self, cache: BoundCache, *, instead_of: CacheId | None) -> bool:
        self.cache = ELSEWHERE
        return MemoryCacheBindings.bind(self, cache, instead_of=instead_of)


def test_of_two_at_once_one_is_refused(identity: CacheIdentity) -> None:
    with pytest.raises(ForeignCacheError):
        evolve(identity, bindings=Rivalry()).ensure()
    evolve(
        identity, bindings=Rivalry(), new_cache_id=lambda: THEIRS, mark=MemoryCacheMark()
    ).ensure()
