"""``tileferry db`` and ``tileferry cache``, run as an operator runs them."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import frozen
from support import json_forms
from support.operator import Operator

from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import NewTile, SectorClass, TileId

CANARY = "canary-password"
HEAD = "0011"
"""The schema that this version needs."""


@frozen
class CacheOperator(Operator):
    """Somebody who has a cache folder as well."""

    @property
    def cache_root(self) -> Path:
        """Where the cache is."""
        return self.home / "cache"

    def environment(self, **settings: str) -> dict[str, str]:
        """Return what a command finds set."""
        root = {"TILEFERRY_C11_CACHE_ROOT": str(self.cache_root)}
        return super().environment(**{**root, **settings})

    def stores(self, count: int) -> None:
        """Put tiles into the cache."""
        self.cache_root.mkdir(exist_ok=True)
        database = Database.at(self.database_url)
        rows = PostgresTileMetadataStore(database=database, clock=SystemClock())
        with SegmentTileStore(root=self.cache_root, index=PostgresBlobIndex(database)) as blobs:
            for x in range(count):
                tile_id = TileId(source="sat", zoom=15, x=x, y=1)
                rows.insert_metadata(
                    NewTile(
                        tile_id=tile_id,
                        flight_id="F1",
                        produced_at=datetime.now(UTC) - timedelta(days=1),
                        resolution_m_per_px=0.6,
                        sector_class=SectorClass.STABLE_REAR,
                        blob=blobs.write_tile(tile_id, bytes([x]) * 1_000),
                    )
                )
            blobs.flush()
            rows.flush()
        database.close()


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> CacheOperator:
    return CacheOperator(tmp_path, database_url)


def test_a_new_database_is_upgraded_once(tmp_path: Path, empty_database_url: str) -> None:
    operator = CacheOperator(tmp_path, empty_database_url)
    status = operator.runs_here("db", "status", "--json")
    assert (status.code, status.json["found"], status.json["is_current"]) == (7, None, False)
    refused = operator.runs_here("cache", "stats")
    assert refused.code == 7
    assert "run tileferry db upgrade" in refused.err
    upgraded = operator.runs_here("db", "upgrade", "--json")
    assert upgraded.json == {"schema": "tileferry.db.upgrade.v1", "from": None, "to": HEAD}
    assert "already" in operator.runs_here("db", "upgrade").out
    assert operator.runs_here("db", "status").code == 0


def test_stats_tell_what_the_cache_holds(operator: CacheOperator) -> None:
    operator.stores(3)
    ran = operator.runs("cache", "stats", "--json", TILEFERRY_C6_BUDGET_BYTES="5000")
    assert ran.code == 0
    assert ran.err == ""
    body = ran.json
    assert body["schema"] == "tileferry.cache.stats.v1"
    assert (body["tiles"], body["used_bytes"], body["budget_bytes"]) == (3, 3_000, 5_000)
    assert "2.9 KiB" in operator.runs_here("cache", "stats").out


def test_a_pinned_flight_is_kept_until_it_is_unpinned(operator: CacheOperator) -> None:
    operator.stores(3)
    for _ in range(2):
        ran = operator.runs_here("cache", "pin", "--flight", "F1", "--json")
        assert (ran.code, ran.err) == (0, "")
        assert (ran.json["pinned"], ran.json["tiles"], ran.json["pinned_flights"]) == (
            True,
            3,
            ["F1"],
        )
    assert operator.runs_here("cache", "stats", "--json").json["pinned_flights"] == ["F1"]
    mistyped = operator.runs_here("cache", "pin", "--flight", "F11")
    assert (mistyped.code, mistyped.out) == (0, "0 tiles of flight F11 are kept.\n")
    assert "check the name" in mistyped.err
    operator.runs_here("cache", "unpin", "--flight", "F11")
    ran = operator.runs_here("cache", "unpin", "--flight", "F1", "--json")
    assert (ran.json["pinned"], ran.json["pinned_flights"]) == (False, [])
    assert operator.runs_here("cache", "pin", "--flight", "../F1").code == 2


def test_a_sound_cache_is_verified(operator: CacheOperator) -> None:
    operator.stores(5)
    ran = operator.runs_here("cache", "verify", "--json")
    assert ran.code == 0
    assert (ran.json["sound"], ran.json["tiles"], ran.json["live_bytes"]) == (True, 5, 5_000)
    assert "sound" in operator.runs_here("cache", "verify").out


def test_one_flipped_bit_is_found_and_named(operator: CacheOperator) -> None:
    operator.stores(5)
    (segment,) = (operator.cache_root / ".c6/segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[content.index(bytes([3]) * 1_000) + 500] ^= 1
    segment.write_bytes(content)
    ran = operator.runs_here("cache", "verify", "--json")
    assert ran.code == 3
    assert (ran.json["sound"], ran.json["damaged_tiles"]) == (False, 1)
    assert ran.json["damage"][0]["tile_id"] == "sat/15/3/1"
    shown = operator.runs_here("cache", "verify")
    assert shown.code == 3
    assert "sat/15/3/1" in shown.out


def test_a_cache_in_use_is_left_alone(operator: CacheOperator) -> None:
    operator.stores(1)
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()
    try:
        ran = operator.runs("cache", "verify")
    finally:
        lock.release()
    assert ran.code == 4
    assert str(os.getpid()) in ran.err


def test_bad_settings_are_refused_by_name(operator: CacheOperator) -> None:
    negative = operator.runs_here("cache", "stats", TILEFERRY_C6_BUDGET_BYTES="-4")
    assert (negative.code, negative.out) == (2, "")
    assert "budget_bytes: must be a whole number from 0 up" in negative.err
    garbage = operator.runs_here("cache", "stats", TILEFERRY_C6_BUDGET_BYTES="lots")
    assert garbage.code == 2
    assert "c6.budget_bytes: cannot be read" in garbage.err
    operator.configures("[tileferry.c6]\nbudgt = 1\n")
    assert "c6.budgt" in operator.runs_here("cache", "stats").err


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{CANARY}@127.0.0.1:1/none",
        f"mysql://me:{CANARY}@127.0.0.1/none",
        f"postgresql//me:{CANARY}@",
    ],
)
def test_a_database_that_cannot_be_used_is_told_of_without_its_password(
    operator: CacheOperator, url: str
) -> None:
    ran = operator.runs("db", "status", TILEFERRY_DATABASE_URL=url)
    assert ran.code in {2, 7}
    assert "database" in ran.err.lower()
    assert CANARY not in ran.out + ran.err


def test_the_settings_file_is_read_and_the_environment_wins(operator: CacheOperator) -> None:
    operator.configures("[tileferry.c6]\nbudget_bytes = 1000\nfree_space_reserve_bytes = 7\n")
    body = operator.runs_here("cache", "stats", "--json", TILEFERRY_C6_BUDGET_BYTES="2000").json
    assert (body["budget_bytes"], body["free_space_reserve_bytes"]) == (2_000, 7)


def test_without_an_address_an_embedded_server_is_used(tmp_path: Path) -> None:
    environment = {
        key: value for key, value in os.environ.items() if key != "TILEFERRY_DATABASE_URL"
    }
    done = subprocess.run(
        [sys.executable, "-m", "tileferry.entrypoints.cli", "db", "upgrade", "--json"],
        env={**environment, "TILEFERRY_DATA_DIR": str(tmp_path / "pg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, json_forms.read(done.stdout)["to"]) == (0, HEAD)
