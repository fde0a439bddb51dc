"""Tiles as a map server reads them."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, evolve, field
from support.pictures import make_picture

from tileferry.adapters.memory import (
    ManualClock,
    MemoryAbsentTiles,
    MemoryBlobIndex,
    MemoryFlightBook,
    MemoryMapIndex,
    MemoryRefusedTiles,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.application.cache.map_service import LAYERS_TTL_S, MapService, MissingReason
from tileferry.domain.errors import DamagedTileError
from tileferry.domain.tiles import Area, BBox, FlightArea, NewTile, SectorClass, TileId
from tileferry.domain.tiles.refusal import Gate, Refusal

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@define
class MapEnv:
    clock: ManualClock = field(factory=lambda: ManualClock(NOW.timestamp()))
    blobs: MemoryBlobIndex = field(factory=MemoryBlobIndex)
    absent: MemoryAbsentTiles = field(factory=MemoryAbsentTiles)
    refused: MemoryRefusedTiles = field(factory=MemoryRefusedTiles)
    tiles: MemoryTileMetadataStore = field(init=False)
    store: MemoryTileStore = field(init=False)
    flights: MemoryFlightBook = field(init=False)
    service: MapService = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tiles = MemoryTileMetadataStore(clock=self.clock, index=self.blobs)
        self.store = MemoryTileStore(index=self.blobs)
        self.flights = MemoryFlightBook(tiles=self.tiles, clock=self.clock)
        self.service = MapService(
            index=MemoryMapIndex(tiles=self.tiles, flights=self.flights),
            store=self.store,
            absent_tiles=self.absent,
            refused_tiles=self.refused,
            clock=self.clock,
        )

    def add(self, name: str, content: bytes, *, days_old: int = 1) -> TileId:
        tile_id = TileId.parse(name)
        blob = self.store.write_tile(tile_id, content)
        self.store.flush()
        self.tiles.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id="F1",
                produced_at=NOW - timedelta(days=days_old),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=blob,
            )
        )
        self.tiles.flush()
        return tile_id


@pytest.fixture
def env() -> MapEnv:
    return MapEnv()


def test_tile_is_read_with_its_kind(env: MapEnv) -> None:
    picture = make_picture("a")
    tile_id = env.add("sat/4/3/2", picture)
    env.add("sat/4/3/3", b"<svg>")
    tile = env.service.read("sat", 4, 3, 2)
    assert tile is not None
    assert (tile.found.tile_id, tile.content, tile.kind) == (tile_id, picture, "png")
    other = env.service.read("merged", 4, 3, 3)
    assert other is not None
    assert other.kind == "bin"
    assert env.service.read("sat", 4, 3, 1) is None
    assert env.service.find_many([tile_id]) == [tile.found]


def test_merged_layer_shows_the_freshest_source(env: MapEnv) -> None:
    env.add("old/4/3/2", make_picture("old"), days_old=9)
    env.add("new/4/3/2", make_picture("new"), days_old=2)
    tile = env.service.read("merged", 4, 3, 2)
    assert tile is not None
    assert tile.found.tile_id.source == "new"


def test_bytes_with_another_digest_are_never_returned(
    env: MapEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add("sat/4/3/2", make_picture("a"))
    monkeypatch.setattr(MemoryTileStore, "read_tile", lambda *_, **__: make_picture("b"))
    with pytest.raises(DamagedTileError, match="sha256"):
        env.service.read("sat", 4, 3, 2)


def test_tile_evicted_while_it_is_read_is_missing(
    env: MapEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    tile_id = env.add("sat/4/3/2", make_picture("a"))
    found = env.service.find("sat", 4, 3, 2)
    assert found is not None
    env.blobs.forget([tile_id])
    env.store.delete_tile(tile_id)
    monkeypatch.setattr(MemoryTileStore, "read_tile", _raise_missing)
    assert env.service.read_found(found) is None


def _raise_missing(_store: MemoryTileStore, tile_id: TileId, **_: object) -> bytes:
    from tileferry.domain.errors import TileNotFoundError  # noqa: PLC0415  # used here only

    raise TileNotFoundError(tile=str(tile_id))


def test_finest_parent_is_found_with_the_part_that_covers_a_place(env: MapEnv) -> None:
    env.add("sat/2/1/1", make_picture("far"))
    near = env.add("sat/3/2/3", make_picture("near"))
    parent = env.service.find_parent("sat", 5, 9, 14, levels_max=4)
    assert parent is not None
    assert parent.tile.found.tile_id == near
    assert (parent.levels, parent.column, parent.row) == (2, 1, 2)
    assert env.service.find_parent("sat", 5, 9, 14, levels_max=1) is None
    assert env.service.find_parent("sat", 0, 0, 0, levels_max=4) is None


def test_missing_tile_is_explained(env: MapEnv) -> None:
    env.add("sat/10/0/0", make_picture("a"))
    absent = TileId.parse("sat/4/3/2")
    env.absent.record_absent([absent], at=NOW)
    for layer in ("sat", "merged"):
        missing = env.service.explain_missing(layer, 4, 3, 2)
        assert missing.reason is MissingReason.ABSENT
        assert "2026-11-01" in missing.detail
    assert env.service.explain_missing("sat", 4, 3, 3).reason is MissingReason.NEVER_REQUESTED


def test_refused_tile_is_explained_by_the_last_refusal(env: MapEnv) -> None:
    refusal = Refusal(
        tile_id=TileId.parse("sat/4/3/2"),
        gate=Gate.FRESHNESS,
        sector_class=SectorClass.ACTIVE_CONFLICT,
        produced_at=NOW - timedelta(days=400),
        resolution_m_per_px=0.6,
        refused_at=NOW,
    )
    earlier = evolve(
        refusal, sector_class=SectorClass.STABLE_REAR, refused_at=NOW - timedelta(days=1)
    )
    env.refused.record_refused([refusal, earlier])
    missing = env.service.explain_missing("sat", 4, 3, 2)
    assert (missing.reason, missing.detail) == (MissingReason.REFUSED, refusal.describe())


def test_missing_tile_of_a_flight_names_the_flight(env: MapEnv) -> None:
    box = BBox(west=36.0, south=50.0, east=36.1, north=50.1)
    area = Area(bbox=box, zoom_levels=[10], sector_class=SectorClass.STABLE_REAR)
    (tile, *_) = area.coverage.tiles("sat")
    env.flights.add_area("F7", FlightArea(source="sat", area=area, added_at=NOW))
    missing = env.service.explain_missing("merged", 10, tile.x, tile.y)
    assert missing.reason is MissingReason.NOT_STORED
    assert "F7" in missing.detail


def test_layers_are_counted_again_after_a_while(env: MapEnv) -> None:
    assert env.service.list_with_merged() == ()
    env.add("sat/4/3/2", make_picture("a"))
    assert [layer.name for layer in env.service.list_with_merged()] == ["merged", "sat"]
    env.add("other/4/3/2", make_picture("a"))
    assert env.service.find_layer("other") is None
    env.clock.advance(LAYERS_TTL_S)
    assert env.service.find_layer("other") is not None
    layer = env.service.find_layer("sat")
    assert layer is not None
    assert layer.tiles == 1
