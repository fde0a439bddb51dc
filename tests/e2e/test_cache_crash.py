"""A downloading process that is killed, loses its power or its database: nothing promised is lost.

The writer is a real process with real files and a real Postgres. After each end of it the whole
cache is read, every byte of every visible tile, and the next writer goes on from there.
"""

import random
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from support.cache import AREA, TILES, check_cache, content
from support.cache_writer import EXIT_REFUSED, CacheWriterPlan, write_cache
from support.crash_processes import SOAK_FACTOR, processes

from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.domain.errors import TileNotFoundError
from tileferry.domain.tiles import TileId

MOMENT_S_MAX = 0.15
STARTED_S_MAX = 30
CALLS_MAX = 160


class CrashCampaign:
    """One cache, downloaded again and again in newer versions, by writers that seldom end well."""

    def __init__(self, root: Path, database_url: str, seed: int) -> None:
        self.root = root
        self.database_url = database_url
        self.chance = random.Random(seed)  # noqa: S311  # a repeatable test, not a secret
        self.version = 0
        self.kills = 0
        self.seen = 0
        """Tiles that were read while a writer wrote."""

    def start(self, **how: Any) -> tuple[CacheWriterPlan, ForkServerProcess]:
        plan = CacheWriterPlan(
            root=self.root,
            database_url=self.database_url,
            version=self.version,
            seed=self.chance.getrandbits(32),
            **how,
        )
        here, there = processes.Pipe(duplex=False)
        writer = processes.Process(target=write_cache, args=(plan, there))
        writer.start()
        there.close()
        with here:
            assert here.poll(STARTED_S_MAX), "its end is closed when the work begins"
        return plan, writer

    def check_ended(self, writer: ForkServerProcess) -> int:
        """Check what a writer left; the next version is due when it got through."""
        writer.join()
        assert writer.exitcode in {0, EXIT_REFUSED, -signal.SIGKILL}
        done = self.check()
        if writer.exitcode == 0:
            assert len(done) == AREA.count
            self.version += 1
        self.kills += writer.exitcode == -signal.SIGKILL
        return writer.exitcode or 0

    def check(self) -> set[TileId]:
        """Hold the cache to its promises; return what the present version has journaled."""
        database = Database.from_url(self.database_url)
        done = check_cache(self.root, database, range(self.version + 1))
        database.close()
        return done

    def finish(self) -> None:
        """Let the last version get through: every tile is there with its newest bytes."""
        version = self.version
        _, writer = self.start()
        assert self.check_ended(writer) == 0
        database = Database.from_url(self.database_url)
        with SegmentTileStore(root=self.root, index=PostgresBlobIndex(database)) as store:
            assert [store.read_tile(tile) for tile in TILES] == [
                content(tile, version) for tile in TILES
            ]
        database.close()

    def read_for(self, seconds: float) -> None:
        """Read tiles while the writer writes them: each is whole, and of some version."""
        end = time.monotonic() + seconds
        database = Database.from_url(self.database_url)
        with SegmentTileStore(root=self.root, index=PostgresBlobIndex(database)) as store:
            while time.monotonic() < end:
                tile = self.chance.choice(TILES)
                try:
                    found = store.read_tile(tile)
                except TileNotFoundError:
                    continue
                assert found in [content(tile, version) for version in range(self.version + 1)]
                self.seen += 1
        database.close()


def test_invariants_1_2_3_6_kill_at_random_moment_loses_nothing(
    tmp_path: Path, database_url: str
) -> None:
    campaign = CrashCampaign(tmp_path / "cache", database_url, seed=1)
    while campaign.kills < 8 * SOAK_FACTOR or not campaign.seen:
        _, writer = campaign.start()
        campaign.read_for(campaign.chance.uniform(0, MOMENT_S_MAX))
        writer.kill()
        campaign.check_ended(writer)
    campaign.finish()


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "power-lost"])
def test_invariants_1_2_3_6_crash_at_random_call_loses_nothing(
    tmp_path: Path, database_url: str, *, power_loss: bool
) -> None:
    campaign = CrashCampaign(tmp_path / "cache", database_url, seed=2 + power_loss)
    while campaign.kills < 6 * SOAK_FACTOR:
        calls_left = campaign.chance.randrange(1, CALLS_MAX)
        _, writer = campaign.start(calls_left=calls_left, power_loss=power_loss)
        campaign.check_ended(writer)
    campaign.finish()


def test_invariants_1_2_dropped_database_connections_lose_nothing(
    tmp_path: Path, database_url: str, postgres_url: str
) -> None:
    campaign = CrashCampaign(tmp_path / "cache", database_url, seed=4)
    refused = 0
    while refused < 3 * SOAK_FACTOR:
        plan, writer = campaign.start()
        time.sleep(campaign.chance.uniform(0, MOMENT_S_MAX))
        drop_connections(postgres_url, make_url(database_url).database)
        if campaign.check_ended(writer) == EXIT_REFUSED:
            refused += 1
            message = plan.error.read_text()
            assert message.startswith("database: ")
            assert "; " in message, "it says what to do"
    campaign.finish()


def drop_connections(postgres_url: str, name: str | None) -> None:
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
            {"name": name},
        )
    engine.dispose()
