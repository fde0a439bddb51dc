"""Invariants 7 and 8: an upload killed at any moment, over links that break, loses nothing."""

import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field
from sqlalchemy import text
from support.cache_upload_env import UploadPlan, execute_upload, ingest_captures, write_captures
from support.crash_processes import SOAK_FACTOR, run_process
from support.provider import API_KEY, RunningProvider

from tileferry.adapters.filesystem import FileFdrClient
from tileferry.adapters.postgres import Database, PostgresEnvelopeStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import build_capture_source

KILLS = 10 * SOAK_FACTOR
TILES = 45
POISONED = 3
SOURCE = build_capture_source("F1")


@pytest.fixture
def provider(reference_provider: RunningProvider) -> RunningProvider:
    return reference_provider


def run_upload(
    plan: UploadPlan, kill_when: Callable[[], bool] | None, after_s: float = 0.0
) -> str | None:
    """Run an upload; return its outcome, unless it was killed, or the provider failed for good."""
    code, outcome = run_process(execute_upload, plan, kill_when=kill_when, after_s=after_s)
    assert code in {0, 1, -signal.SIGKILL}
    return outcome  # type: ignore[no-any-return]  # as it was sent


@define
class UploadChecker:
    """What must not happen after each moment, and the means to see that it did not."""

    database: Database
    provider: RunningProvider
    acknowledged: dict[str, int] = field(factory=dict)
    """Each tile whose ack is recorded, and the provider's line at which that was seen."""

    def statuses(self) -> Counter[str]:
        query = text("SELECT voting_status, count(*) FROM tiles GROUP BY 1")
        with self.database.read_connection() as connection:
            return Counter({row[0]: row[1] for row in connection.execute(query)})

    def record_acknowledged(self) -> None:
        """Note which acks are recorded by now; the uploading process is dead."""
        query = text("SELECT zoom, x, y FROM tiles WHERE voting_status = 'uploaded'")
        with self.database.read_connection() as connection:
            found = [f"{SOURCE}/{row.zoom}/{row.x}/{row.y}" for row in connection.execute(query)]
        last = max((line.seq for line in self.provider.requests), default=0)
        for tile in found:
            self.acknowledged.setdefault(tile, last)

    def check(self) -> None:
        """No POST of a tile after its ack; each tile there once; no key with two bodies."""
        tiles_of: dict[str, set[str]] = defaultdict(set)
        for line in self.provider.uploads:
            tiles_of[line.idempotency_key].add(line.tile_id)
        posts = [line for line in self.provider.requests if line.method == "POST"]
        for post in posts:
            assert post.status in {200, None, 503}  # a 409 would be another body, a 403 a signature
            for tile in tiles_of[post.idempotency_key or ""]:
                assert post.seq <= self.acknowledged.get(tile, post.seq), tile
        accepted = Counter(
            line.tile_id for line in self.provider.uploads if line.status == "accepted"
        )
        assert set(accepted.values()) <= {1}


def poison_rule(place: str) -> dict[str, object]:
    return {"fault": "poison", "tile": f"{SOURCE}/{place}"}


def test_invariants_7_8_9_kill_at_random_moment_over_broken_link_loses_nothing(
    tmp_path: Path, database: Database, database_url: str, provider: RunningProvider
) -> None:
    chance = random.Random(7)  # noqa: S311  # a repeatable test, not a secret
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        provider.reset()
        with database.transaction() as connection:
            connection.execute(text("TRUNCATE tiles"))
        root = tmp_path / str(rounds)
        plan = UploadPlan(
            root=root / "cache",
            database_url=database_url,
            provider_url=provider.url,
            api_key=API_KEY,
            batch_tiles=chance.choice([3, 7, 20]),
            max_in_call_retries=chance.choice([1, 3]),
        )
        places = write_captures(root / "card", TILES)
        ingest_captures(plan, root / "card")
        provider.set_faults(
            *map(poison_rule, places[5::15][:POISONED]),
            {"fault": "lost-answer", "call": "upload", "rate": 0.15},
            {"fault": "cut", "call": "upload", "rate": 0.15},
        )
        books = UploadChecker(database, provider)
        while books.statuses()["pending"]:
            before = len(provider.requests)
            posts = chance.randint(0, 10)
            outcome = run_upload(
                plan,
                lambda n=before + posts: len(provider.requests) >= n,  # type: ignore[misc]  # bound now
                after_s=chance.uniform(0.0, 0.02),
            )
            kills += outcome is None
            books.record_acknowledged()
            books.check()
        assert books.statuses() == Counter(uploaded=TILES - POISONED, upload_giveup=POISONED)
        # By the provider's own record: every rejection was counted, and none twice.
        rejections: dict[str, set[str]] = defaultdict(set)
        for line in provider.uploads:
            if line.status == "rejected":
                rejections[line.tile_id].add(line.idempotency_key)
        assert {len(keys) for keys in rejections.values()} == {5}
        assert check_giveups(plan, database) == {f"{SOURCE}/{place}" for place in places[5::15]}
        # What a crash left open between an ack and its envelope is forgotten, not sent.
        run_upload(plan, None)
        books.check()
        assert PostgresEnvelopeStore(database).list_open_envelopes("F1") == []


def check_giveups(plan: UploadPlan, database: Database) -> set[str]:
    """Each giveup has spent its budget, no more, and is on the recorder."""
    query = text("SELECT DISTINCT upload_attempts FROM tiles WHERE voting_status = 'upload_giveup'")
    with database.read_connection() as connection:
        assert list(connection.execute(query).scalars()) == [5]
    recorder = FileFdrClient(root=plan.root, clock=SystemClock())
    found = {str(record.payload["tile_id"]) for record in recorder.records()}
    recorder.close()
    return found
