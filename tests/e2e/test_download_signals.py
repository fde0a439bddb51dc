"""Invariant 17: a download that is told to stop, at any moment, stops in time and goes on later."""

import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from support.download_env import DERKACHI, ZOOM
from support.download_operator import DOWNLOAD, DownloadOperator, RunningCommand, wait_until
from support.operator import CommandResult
from support.scripted_provider import TILES, ScriptedProvider, tile_content, tile_path

from tileferry.adapters.postgres import Database

COUNT = 60
STOPS_WITHIN_S = 15.0
"""Half of any wait; what it takes is mostly the end of a Python process, on a busy machine too."""
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.for_area(DERKACHI, ZOOM, COUNT)


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, provider: ScriptedProvider
) -> Iterator[DownloadOperator]:
    with provider.serve() as url:
        yield DownloadOperator(tmp_path, database_url, url)


def is_logged(operator: DownloadOperator, kind: str) -> Callable[[], bool]:
    return lambda: any(record.get("kind") == kind for record in operator.read_log())


def send_and_wait(command: RunningCommand, number: signal.Signals) -> CommandResult:
    """Send a signal, and return how the command ended; in time."""
    signalled_s = time.monotonic()
    command.send_signal(number)
    ran = command.wait()
    assert time.monotonic() - signalled_s < STOPS_WITHIN_S
    assert ran.code == 130
    return ran


def parse_safe_count(ran: CommandResult) -> int:
    """Return how many tiles it called safe."""
    found = re.search(r"([\d,]+) tiles are safe; re-run to resume", ran.err)
    assert found is not None, ran.err
    return int(found[1].replace(",", ""))


def assert_resumes(operator: DownloadOperator, provider: ScriptedProvider, safe: int) -> None:
    """Run it again: what was called safe is not fetched again, and nothing is left out."""
    provider.always.clear()
    provider.requests.clear()
    ran = operator.run_in_process(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["outcome"]) == (0, "success")
    assert ran.json["tiles_downloaded"] == COUNT
    assert len(provider.tile_gets) == COUNT - safe


def answer_429(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(429, headers={"retry-after": "30"})


@pytest.mark.parametrize("number", SIGNALS)
def test_invariant_17_signal_during_rate_limit_wait_stops_download(
    operator: DownloadOperator, provider: ScriptedProvider, number: signal.Signals
) -> None:
    provider.always[tile_path(provider.tiles[10])] = answer_429
    with operator.start(*DOWNLOAD, "--json") as command:
        wait_until(is_logged(operator, "retry.attempt"), "the wait")
        ran = send_and_wait(command, number)
    assert (ran.json["outcome"], ran.json["error"]["message"]) == ("failure", "interrupted")
    safe = parse_safe_count(ran)
    assert ran.json["tiles_downloaded"] == safe > 0
    (last,) = [record for record in operator.read_log() if "interrupted" in record["kind"]]
    assert last["level"] == "ERROR"
    assert_resumes(operator, provider, safe)


def test_invariant_17_signal_during_listing_wait_stops_download(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = answer_429
    with operator.start(*DOWNLOAD) as command:
        wait_until(is_logged(operator, "retry.attempt"), "the wait")
        ran = send_and_wait(command, signal.SIGTERM)
    assert "No tile was fetched" in ran.err
    assert_resumes(operator, provider, 0)


@contextmanager
def silent_path(provider: ScriptedProvider, path: str) -> Iterator[threading.Event]:
    """Take requests for a path, and do not answer; the event says that one has come."""
    asked, over = threading.Event(), threading.Event()

    def stall(_request: httpx.Request) -> httpx.Response:
        asked.set()
        over.wait(60)
        return httpx.Response(503)

    provider.always[path] = stall
    yield asked
    over.set()


@pytest.mark.parametrize("where", ["listing", "tile"])
def test_invariant_17_signal_during_read_stops_download(
    operator: DownloadOperator, provider: ScriptedProvider, where: str
) -> None:
    path = TILES if where == "listing" else tile_path(provider.tiles[-1])
    with silent_path(provider, path) as asked, operator.start(*DOWNLOAD) as command:
        assert asked.wait(90)
        if where == "tile":
            wait_until(lambda: len(provider.tile_gets) == COUNT, "all other tiles")
        ran = send_and_wait(command, signal.SIGINT)
    safe = 0 if where == "listing" else parse_safe_count(ran)
    assert (safe > 0) == (where == "tile")
    assert_resumes(operator, provider, safe)


@contextmanager
def block_row_writes(database: Database) -> Iterator[Callable[[], None]]:
    """Hold up every commit until the block ends, or what it yields is called."""
    with database.engine.connect() as connection:
        connection.execute(text("LOCK TABLE tiles IN SHARE MODE"))
        yield connection.rollback


def is_commit_waiting(database: Database) -> Callable[[], bool]:
    query = text(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM"
        " pg_database WHERE datname = current_database())"
    )

    def waits() -> bool:
        with database.read_connection() as connection:
            return bool(connection.execute(query).scalar_one())

    return waits


def test_invariant_17_signal_during_commit_waits_for_commit(
    operator: DownloadOperator, provider: ScriptedProvider, database: Database
) -> None:
    with (
        block_row_writes(database) as let_go,
        operator.start(*DOWNLOAD, "--json") as command,
    ):
        wait_until(is_commit_waiting(database), "a commit")
        command.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert command.process.poll() is None  # it does not leave its commit
        let_go()
        ran = command.wait()
    assert ran.code == 130
    safe = parse_safe_count(ran)
    assert ran.json["tiles_downloaded"] == safe > 0
    assert_resumes(operator, provider, safe)


def test_invariant_17_process_ends_after_grace_period(
    operator: DownloadOperator, provider: ScriptedProvider, database: Database
) -> None:
    operator.settings["TILEFERRY_C11_STOP_GRACE_S"] = "1"
    with block_row_writes(database), operator.start(*DOWNLOAD) as command:
        wait_until(is_commit_waiting(database), "a commit")
        ran = send_and_wait(command, signal.SIGTERM)
    assert "Stopped immediately" in ran.err
    assert_resumes(operator, provider, 0)


def test_invariant_17_second_signal_ends_download_at_once(
    operator: DownloadOperator, provider: ScriptedProvider, database: Database
) -> None:
    operator.settings["TILEFERRY_C11_STOP_GRACE_S"] = "60"
    with block_row_writes(database), operator.start(*DOWNLOAD) as command:
        wait_until(is_commit_waiting(database), "a commit")
        command.send_signal(signal.SIGINT)
        time.sleep(0.2)
        ran = send_and_wait(command, signal.SIGINT)
    assert "Stopped immediately" in ran.err
    assert_resumes(operator, provider, 0)


def test_invariant_17_signals_at_random_moments_lose_nothing(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    moments = random.Random(17)  # noqa: S311  # which moments is of no matter
    safe = 0
    for _ in range(3):
        provider.requests.clear()
        after = moments.randrange(1, max(2, COUNT - safe))
        with operator.start(*DOWNLOAD) as command:
            wait_until(
                lambda n=after, run=command.process: (  # type: ignore[misc]  # bound now
                    len(provider.tile_gets) >= n or run.poll() is not None
                ),
                "some tiles",
            )
            command.send_signal(moments.choice(SIGNALS))
            ran = command.wait()
        # It was faster, or the signal arrived after its report, at its very end.
        if ran.code == 0 or (ran.code == -signal.SIGTERM and "outcome" in ran.out):
            break
        assert ran.code == 130
        assert parse_safe_count(ran) >= safe
        safe = parse_safe_count(ran)
    else:
        assert_resumes(operator, provider, safe)


def test_killed_download_leaves_no_stale_reservation(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    tiles_bytes = sum(len(tile_content(tile)) for tile in provider.tiles)
    operator.settings["TILEFERRY_C6_BUDGET_BYTES"] = str(tiles_bytes)
    operator.settings["TILEFERRY_C6_FREE_SPACE_RESERVE_BYTES"] = "0"
    with (
        silent_path(provider, tile_path(provider.tiles[-1])) as asked,
        operator.start(*DOWNLOAD) as run,
    ):
        assert asked.wait(90)
        run.send_signal(signal.SIGKILL)
        assert run.wait().code == -signal.SIGKILL
    provider.always.clear()
    ran = operator.run_in_process(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["tiles_downloaded"]) == (0, COUNT)
