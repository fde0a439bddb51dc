"""Pins under eviction pressure, over every book, against a model that lists every tile."""

from collections.abc import Callable
from datetime import timedelta

from attrs import define, evolve, field, frozen
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support.cache_env import (
    NOTE,
    NOW,
    TILE,
    CacheEnv,
    area_of,
    create_memory_cache_env,
    create_postgres_cache_env,
)

from tileferry.adapters.postgres import Database
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId

ZOOM, SIDE, SIZE, BUDGET_TILES = 4, 6, 100, 14
FLIGHTS = ("F1", "F2", "F3")


@frozen
class Download:
    """A flight downloads a rectangle."""

    flight: str
    x: tuple[int, int]
    y: tuple[int, int]


@frozen
class Change:
    """An operator changes a flight."""

    flight: str
    what: str


@define
class Model:
    """Every tile of every area, listed; and the tiles that the cache has to hold."""

    env: CacheEnv
    areas: dict[str, set[TileId]] = field(factory=dict)
    pinned: set[str] = field(factory=set)
    expired: set[str] = field(factory=set)
    stored_for: dict[TileId, str] = field(factory=dict)
    offset: int = 0

    def run(self, step: Download | Change) -> None:
        if isinstance(step, Download):
            self.download(step)
        else:
            getattr(self, step.what)(step.flight)

    def download(self, step: Download) -> None:
        xs, ys = (range(min(ends), max(ends) + 1) for ends in (step.x, step.y))
        wanted = {evolve(TILE, zoom=ZOOM, x=x, y=y) for x in xs for y in ys}
        self.env.flights.add_area(step.flight, area_of(ZOOM, xs, ys))
        self.areas.setdefault(step.flight, set()).update(wanted)
        before, protected = set(self.stored_for), self.list_protected()
        budget = self.env.budget(BUDGET_TILES * SIZE)
        result = budget.reserve_headroom(len(wanted - before) * SIZE, keep=wanted & before)
        budget.release_headroom()
        evicted = set(result.evicted)
        assert not evicted & protected, "a protected tile was evicted"
        assert not evicted & wanted
        if result.insufficient:  # only if nothing that could be evicted was left
            kept = len(before & (protected | wanted))
            assert kept + len(wanted - before) > BUDGET_TILES
            assert not evicted
        else:
            self.store(step.flight, wanted)
        for tile in evicted:
            del self.stored_for[tile]
        for x in range(SIDE):
            for y in range(SIDE):
                tile = evolve(TILE, zoom=ZOOM, x=x, y=y)
                found = self.env.store.get_metadata(tile)
                assert (found is not None) == (tile in self.stored_for)

    def store(self, flight: str, wanted: set[TileId]) -> None:
        for tile in sorted(wanted):
            self.offset += 1
            self.env.clock.advance(1.0)
            self.env.store.insert_metadata(
                NewTile(
                    tile_id=tile,
                    flight_id=flight,
                    produced_at=NOW,
                    resolution_m_per_px=0.6,
                    sector_class=SectorClass.STABLE_REAR,
                    blob=BlobRef(location=(1, self.offset), length=SIZE, sha256="ab" * 32),
                )
            )
            self.stored_for[tile] = flight
        self.env.store.flush()

    def list_protected(self) -> set[TileId]:
        flights = self.pinned - self.expired
        inside = {tile for flight in flights for tile in self.areas.get(flight, ())}
        return inside | {tile for tile, flight in self.stored_for.items() if flight in flights}

    def pin(self, flight: str) -> None:
        self.env.flights.pin_flight(flight, NOTE)
        self.pinned.add(flight)

    def unpin(self, flight: str) -> None:
        self.env.flights.unpin_flight(flight, NOTE)
        self.pinned.discard(flight)

    def expire(self, flight: str) -> None:
        self.env.flights.set_expiry(flight, NOW - timedelta(days=36_500), NOTE)
        self.expired.add(flight)

    def renew(self, flight: str) -> None:
        self.env.flights.set_expiry(flight, NOW + timedelta(days=36_500), NOTE)
        self.expired.discard(flight)

    def remove(self, flight: str) -> None:
        self.env.flights.remove_flight(flight, NOTE)
        self.areas.pop(flight, None)
        self.pinned.discard(flight)
        self.expired.discard(flight)


# Few places and large areas, so that flights overlap and space is short.
_ends = st.sampled_from([(0, 2), (0, 3), (2, 4), (3, 5), (1, 1)])
_flights = st.sampled_from(FLIGHTS)
_changes = st.builds(
    Change, _flights, st.sampled_from(["pin", "pin", "unpin", "expire", "renew", "remove"])
)
_downloads = st.builds(Download, _flights, _ends, _ends)
_steps = st.lists(_downloads | _downloads | _changes, min_size=4, max_size=14)
SEEN = [
    Download("F1", (0, 2), (0, 2)),
    Change("F1", "pin"),
    Download("F2", (0, 2), (0, 2)),
    Download("F3", (3, 5), (3, 5)),
]
"""What once evicted the tiles of a pinned flight."""


def _check(create: Callable[[], CacheEnv], steps: list[Download | Change]) -> None:
    model = Model(create())
    for step in steps:
        model.run(step)


@settings(deadline=None, max_examples=150)
@example(SEEN)
@given(_steps)
def test_invariant_40_no_tile_inside_a_pinned_flights_areas_is_evicted(
    steps: list[Download | Change],
) -> None:
    _check(create_memory_cache_env, steps)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(steps=SEEN)
@given(steps=_steps)
def test_invariant_40_holds_in_postgres(database: Database, steps: list[Download | Change]) -> None:
    def create() -> CacheEnv:
        with database.transaction() as connection:
            connection.execute(text("TRUNCATE tiles, flights, flight_pins CASCADE"))
        return create_postgres_cache_env(database)

    _check(create, steps)
