"""``tileferry db`` and ``tileferry cache``, run as an operator runs them."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import frozen
from support import contracts
from support.operator import Operator

from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import NewTile, SectorClass, TileId

CANARY = "canary-password"
HEAD = "0022"
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

    def store_tiles(self, count: int) -> None:
        """Put tiles into the cache."""
        self.cache_root.mkdir(exist_ok=True)
        database = Database.from_url(self.database_url)
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


def test_new_database_is_upgraded_once(tmp_path: Path, empty_database_url: str) -> None:
    operator = CacheOperator(tmp_path, empty_database_url)
    status = operator.run_in_process("db", "status", "--json")
    assert (status.code, status.json["found"], status.json["is_current"]) == (7, None, False)
    refused = operator.run_in_process("cache", "stats")
    assert refused.code == 7
    assert "run `tileferry db upgrade`" in refused.err
    upgraded = operator.run_in_process("db", "upgrade", "--json")
    assert upgraded.json == {"schema": "tileferry.db.upgrade.v1", "from": None, "to": HEAD}
    assert "already" in operator.run_in_process("db", "upgrade").out
    assert operator.run_in_process("db", "status").code == 0


def test_stats_report_cache_usage(operator: CacheOperator) -> None:
    operator.store_tiles(3)
    ran = operator.run_in_process("cache", "stats", "--json", TILEFERRY_C6_BUDGET_BYTES="5000")
    assert ran.code == 0
    assert ran.err == ""
    body = ran.json
    assert body["schema"] == "tileferry.cache.stats.v1"
    assert (body["tiles"], body["used_bytes"], body["budget_bytes"]) == (3, 3_000, 5_000)
    assert "2.9 KiB" in operator.run_in_process("cache", "stats").out


def test_tile_is_explained(operator: CacheOperator) -> None:
    operator.store_tiles(1)
    found = operator.run("cache", "explain", "15/0/1", "--json")
    (version,) = found.json["versions"]
    assert (version["tile_id"], version["problem"]) == ("sat/15/0/1", None)
    assert (found.json["source"], found.json["missing"], found.json["needs"]) == (None, None, [])
    missing = operator.run("cache", "explain", "sat/15/1/1")
    assert missing.code == 0
    assert "No flight needs this tile." in missing.out
    assert "Not in the cache: no flight has this tile in its areas." in missing.out
    wrong = operator.run("cache", "explain", "15/99999/1")
    assert (wrong.code, "TILE" in wrong.err) == (2, True)


def test_flight_stays_pinned_until_unpinned(operator: CacheOperator) -> None:
    operator.store_tiles(3)
    for _ in range(2):
        ran = operator.run_in_process("cache", "pin", "--flight", "F1", "--json")
        assert (ran.code, ran.err) == (0, "")
        assert (ran.json["pinned"], ran.json["tiles"], ran.json["pinned_flights"]) == (
            True,
            3,
            ["F1"],
        )
    assert operator.run_in_process("cache", "stats", "--json").json["pinned_flights"] == ["F1"]
    mistyped = operator.run_in_process("cache", "pin", "--flight", "F11")
    assert (mistyped.code, mistyped.out) == (0, "0 tiles of flight F11 are pinned.\n")
    assert "check the name" in mistyped.err
    operator.run_in_process("cache", "unpin", "--flight", "F11")
    ran = operator.run_in_process("cache", "unpin", "--flight", "F1", "--json")
    assert (ran.json["pinned"], ran.json["pinned_flights"]) == (False, [])
    assert operator.run_in_process("cache", "pin", "--flight", "../F1").code == 2


def test_intact_cache_is_verified(operator: CacheOperator) -> None:
    operator.store_tiles(5)
    ran = operator.run_in_process("cache", "verify", "--json")
    assert ran.code == 0
    assert (ran.json["sound"], ran.json["tiles"], ran.json["live_bytes"]) == (True, 5, 5_000)
    assert "sound" in operator.run_in_process("cache", "verify").out


def test_flipped_bit_is_detected_and_tile_named(operator: CacheOperator) -> None:
    operator.store_tiles(5)
    (segment,) = (operator.cache_root / ".c6/segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[content.index(bytes([3]) * 1_000) + 500] ^= 1
    segment.write_bytes(content)
    ran = operator.run_in_process("cache", "verify", "--json")
    assert ran.code == 3
    assert (ran.json["sound"], ran.json["damaged_tiles"]) == (False, 1)
    assert ran.json["damage"][0]["tile_id"] == "sat/15/3/1"
    shown = operator.run_in_process("cache", "verify")
    assert shown.code == 3
    assert "sat/15/3/1" in shown.out


def test_cache_is_verified_while_another_process_holds_it(operator: CacheOperator) -> None:
    operator.store_tiles(1)
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()
    try:
        ran = operator.run("cache", "verify")
    finally:
        lock.release()
    assert ran.code == 0
    assert "sound" in ran.out


def test_invalid_settings_are_rejected_by_name(operator: CacheOperator) -> None:
    negative = operator.run_in_process("cache", "stats", TILEFERRY_C6_BUDGET_BYTES="-4")
    assert (negative.code, negative.out) == (2, "")
    assert "budget_bytes: must be a whole number of at least 0" in negative.err
    garbage = operator.run_in_process("cache", "stats", TILEFERRY_C6_BUDGET_BYTES="lots")
    assert garbage.code == 2
    assert "c6.budget_bytes: invalid value" in garbage.err
    operator.write_config("[tileferry.c6]\nbudgt = 1\n")
    assert "c6.budgt" in operator.run_in_process("cache", "stats").err


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{CANARY}@127.0.0.1:1/none",
        f"mysql://me:{CANARY}@127.0.0.1/none",
        f"postgresql//me:{CANARY}@",
    ],
)
def test_database_error_does_not_show_password(operator: CacheOperator, url: str) -> None:
    ran = operator.run_in_process("db", "status", TILEFERRY_DATABASE_URL=url)
    assert ran.code in {2, 7}
    assert "database" in ran.err.lower()
    assert CANARY not in ran.out + ran.err


def test_environment_overrides_settings_file(operator: CacheOperator) -> None:
    operator.write_config("[tileferry.c6]\nbudget_bytes = 1000\nfree_space_reserve_bytes = 7\n")
    body = operator.run_in_process(
        "cache", "stats", "--json", TILEFERRY_C6_BUDGET_BYTES="2000"
    ).json
    assert (body["budget_bytes"], body["free_space_reserve_bytes"]) == (2_000, 7)


def test_embedded_server_is_used_without_database_url(tmp_path: Path) -> None:
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
    assert (done.returncode, contracts.parse_output(done.stdout)["to"]) == (0, HEAD)
