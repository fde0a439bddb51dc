"""What every memory of tile origins must do."""

import pytest

from tileferry.adapters.memory import MemoryTileOrigins
from tileferry.adapters.postgres import Database, PostgresTileOrigins
from tileferry.application.ports import TileOrigins
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.origin import TileOrigin

TILES = [TileId(source="xyz-a", zoom=14, x=x, y=5_544) for x in range(3)]


def create_origin(tile: TileId, digit: str = "a", origin: str = "xyz-b") -> TileOrigin:
    return TileOrigin(tile_id=tile, sha256=digit * 64, origin=origin)


@pytest.fixture(params=["memory", "postgres"])
def origins(request: pytest.FixtureRequest) -> TileOrigins:
    if request.param == "memory":
        return MemoryTileOrigins()
    database: Database = request.getfixturevalue("database")
    return PostgresTileOrigins(database=database)


def test_last_origin_of_each_tile_is_found(origins: TileOrigins) -> None:
    origins.record_origins([create_origin(TILES[1]), create_origin(TILES[0])])
    newer = create_origin(TILES[0], "b", "xyz-c")
    origins.record_origins([create_origin(TILES[0], "c"), newer])
    found = origins.find_origins(TILES)
    assert found == {TILES[0]: newer, TILES[1]: create_origin(TILES[1])}


def test_nothing_is_found_or_recorded_without_tiles(origins: TileOrigins) -> None:
    origins.record_origins([])
    assert origins.find_origins([]) == origins.find_origins(TILES) == {}


@pytest.mark.parametrize("changed", [{"sha256": "a"}, {"origin": ""}, {"tile_id": "a/1/1/1"}])
def test_invalid_origin_is_rejected(changed: dict[str, str]) -> None:
    good = {"tile_id": TILES[0], "sha256": "a" * 64, "origin": "xyz-b"}
    with pytest.raises(InvalidValueError, match="TileOrigin"):
        TileOrigin(**(good | changed))  # type: ignore[arg-type]  # on purpose
