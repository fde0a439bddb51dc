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
from tileferry.application.cache.identity import CacheIdentity
from tileferry.domain.errors import ForeignCacheError
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheFit, CacheId

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
OURS, THEIRS = CacheId("0" * 32), CacheId("1" * 32)
HERE = "laptop:/cache"
ELSEWHERE = CacheBinding(cache_id=THEIRS, place="server:/cache")


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


def insert_tile(tiles: MemoryTileMetadataStore) -> None:
    tiles.insert_metadata(
        NewTile(
            tile_id=TileId(source="sat", zoom=1, x=0, y=0),
            flight_id="F1",
            produced_at=NOW - timedelta(days=1),
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(location=(1, 16), length=0, sha256="ab" * 32),
        )
    )
    tiles.flush()


def test_first_use_binds_database_that_already_has_tiles(
    identity: CacheIdentity, tiles: MemoryTileMetadataStore
) -> None:
    insert_tile(tiles)
    assert identity.check() is CacheFit.FREE
    assert (identity.mark.read(), identity.bindings.find_bound()) == (None, None)
    identity.ensure()
    assert identity.mark.read() == OURS
    assert identity.bindings.find_bound() == CacheBinding(cache_id=OURS, place=HERE)
    assert identity.check() is CacheFit.BOUND
    identity.ensure()


def test_unbound_mark_is_bound_on_next_use(identity: CacheIdentity) -> None:
    identity.mark.write(THEIRS)
    identity.ensure()
    assert identity.bindings.find_bound() == CacheBinding(cache_id=THEIRS, place=HERE)


def test_moved_cache_updates_bound_place(
    identity: CacheIdentity, tiles: MemoryTileMetadataStore
) -> None:
    identity.ensure()
    insert_tile(tiles)
    evolve(identity, place="laptop:/moved").ensure()
    assert identity.bindings.find_bound() == CacheBinding(cache_id=OURS, place="laptop:/moved")


@pytest.mark.parametrize(
    ("own", "said"), [(None, "has lost its files"), (OURS, "is a different cache")]
)
def test_foreign_cache_is_rejected_without_changes(
    identity: CacheIdentity, tiles: MemoryTileMetadataStore, own: CacheId | None, said: str
) -> None:
    identity.bindings.bind(ELSEWHERE, instead_of=None)
    if own is not None:
        identity.mark.write(own)
    insert_tile(tiles)
    for attempt in (identity.check, identity.ensure):
        with pytest.raises(ForeignCacheError, match=said) as refused:
            attempt()
        assert (refused.value.place, refused.value.bound_place) == (HERE, "server:/cache")
    assert (identity.mark.read(), identity.bindings.find_bound()) == (own, ELSEWHERE)


def test_reservation_of_another_cache_blocks_rebinding(
    identity: CacheIdentity,
) -> None:
    identity.bindings.bind(ELSEWHERE, instead_of=None)
    with identity.ledger.begin_transaction() as books:
        books.reserve("server", 1)
    with pytest.raises(ForeignCacheError):
        identity.ensure()


def test_database_without_tiles_can_be_rebound(identity: CacheIdentity) -> None:
    identity.bindings.bind(ELSEWHERE, instead_of=None)
    assert identity.check() is CacheFit.FREE
    identity.ensure()
    assert identity.bindings.find_bound() == CacheBinding(cache_id=OURS, place=HERE)


@define
class RacingBindings(MemoryCacheBindings):
    """Somebody else is always a little faster."""

    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        self.cache = ELSEWHERE
        return MemoryCacheBindings.bind(self, cache, instead_of=instead_of)


def test_concurrent_binding_by_another_cache_is_rejected(identity: CacheIdentity) -> None:
    with pytest.raises(ForeignCacheError):
        evolve(identity, bindings=RacingBindings()).ensure()
    evolve(
        identity, bindings=RacingBindings(), new_cache_id=lambda: THEIRS, mark=MemoryCacheMark()
    ).ensure()
