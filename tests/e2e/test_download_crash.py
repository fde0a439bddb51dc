"""Spec 5, AC-12: a real process over real HTTP, killed at any moment, goes on where it was."""

import hashlib
import logging
import random
import signal
from collections.abc import Callable
from pathlib import Path

from support.crash_processes import SOAK_FACTOR, run_process
from support.download_env import DERKACHI, ZOOM, DownloadPlan, execute_download
from support.scripted_provider import KEY, ScriptedProvider, tile_content, tile_path

from tileferry.adapters.filesystem import FileJournalStore, SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.domain.tiles import TileId, TileSet

KILLS = 20 * SOAK_FACTOR
TILES = 100


def read_journaled_tiles(plan: DownloadPlan) -> set[TileId] | None:
    """Return the tiles that the journal vouches for; ``None`` once it is complete."""
    journals = FileJournalStore(root=plan.root, logger=logging.getLogger("tests"))
    key_hash = hashlib.sha256(f"Bearer {KEY}".encode()).hexdigest()
    journal = journals.open(plan.request.journal_name(key_hash))
    done = TileSet(plan.request.coverage)
    journal.read_into(done)
    complete = journal.complete
    journal.close()
    if complete:
        return None
    return {tile for tile in plan.request.coverage.tiles("satellite") if tile in done}


def run_download(
    plan: DownloadPlan, *, kill_when: Callable[[], bool] | None = None, after_s: float = 0.0
) -> tuple[str, int] | None:
    """Run a download; return its report, unless it was killed before that."""
    code, report = run_process(execute_download, plan, kill_when=kill_when, after_s=after_s)
    assert code in {0, -signal.SIGKILL}
    return report  # type: ignore[no-any-return]  # as it was sent


def test_spec5_ac12_kill_at_random_moment_loses_no_journaled_tile(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    chance = random.Random(12)  # noqa: S311  # a repeatable test, not a secret
    provider = ScriptedProvider.for_area(DERKACHI, ZOOM, TILES)
    kills = resumed = flight = 0
    with provider.serve() as url:
        while kills < KILLS:
            flight += 1
            # Newer than for the last flight, so that its tiles do not serve this one.
            provider.produced_at = f"2026-10-01T00:{flight:02}:00Z"
            plan = DownloadPlan(
                root=tmp_path,
                database_url=database_url,
                provider_url=url,
                flight_id=f"F{flight}",
                group_tiles=chance.choice([3, 10, 30]),
                in_background=chance.random() < 0.5,
            )
            known: set[TileId] = set()
            report = None
            while report is None:
                provider.requests.clear()
                # Moments of the work, not of the clock: they are the same on a slow machine.
                left = TILES - len(known)
                asked_for = chance.randint(left // 4, left + 5)  # more than all: it ends
                report = run_download(
                    plan,
                    kill_when=lambda n=asked_for: len(provider.tile_gets) >= n,  # type: ignore[misc]  # bound now
                    after_s=chance.uniform(0.0, 0.02),
                )
                asked = set(provider.tile_gets)
                assert not asked & {tile_path(tile) for tile in known}
                kills += report is None
                resumed += bool(known)
                safe = read_journaled_tiles(plan)
                if safe is None:
                    break
                known = safe
            provider.requests.clear()
            report = report or run_download(plan)
            assert report in {("success", TILES), ("idempotent_no_op", TILES)}
            check_tiles(tmp_path, database, provider)
    assert resumed >= KILLS // 4  # otherwise the moments are badly chosen


def check_tiles(root: Path, database: Database, provider: ScriptedProvider) -> None:
    with SegmentTileStore(root=root, index=PostgresBlobIndex(database)) as store:
        for tile in provider.tiles:
            assert store.read_tile(tile) == tile_content(tile)
