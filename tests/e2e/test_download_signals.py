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
from support.area_operator import DOWNLOAD, AreaOperator, Started, wait_until
from support.download_site import DERKACHI, ZOOM
from support.operator import Ran
from support.scripted_provider import TILES, ScriptedProvider, path_of

from tileferry.adapters.postgres import Database

COUNT = 60
STOPS_WITHIN_S = 15.0
"""Half of any wait; what it takes is mostly the end of a Python process, on a busy machine too."""
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.of_area(DERKACHI, ZOOM, COUNT)


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, provider: ScriptedProvider
) -> Iterator[AreaOperator]:
    with provider.served() as url:
        yield AreaOperator(tmp_path, database_url, url)


def logged(operator: AreaOperator, kind: str) -> Callable[[], bool]:
    return lambda: any(record.get("kind") == kind for record in operator.records())


def stopped(command: Started, number: signal.Signals) -> Ran:
    """Send a signal, and return how the command ended; in time."""
    signalled_s = time.monotonic()
    command.signalled(number)
    ran = command.ended()
    assert time.monotonic() - signalled_s < STOPS_WITHIN_S
    assert ran.code == 130
    return ran


def safe_in(ran: Ran) -> int:
    """Return how many tiles it called safe."""
    found = re.search(r"([\d,]+) tiles are safe; run the same command to go on", ran.err)
    assert found is not None, ran.err
    return int(found[1].replace(",", ""))


def assert_goes_on(operator: AreaOperator, provider: ScriptedProvider, safe: int) -> None:
    """Run it again: what was called safe is not fetched again, and nothing is left out."""
    provider.always.clear()
    provider.requests.clear()
    ran = operator.runs_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["outcome"]) == (0, "success")
    assert ran.json["tiles_downloaded"] == COUNT
    assert len(provider.tile_gets) == COUNT - safe


def patience(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(429, headers={"retry-after": "30"})


@pytest.mark.parametrize("number", SIGNALS)
def test_invariant_17_a_signal_during_a_wait_of_thirty_seconds(
    operator: AreaOperator, provider: ScriptedProvider, number: signal.Signals
) -> None:
    provider.always[path_of(provider.tiles[10])] = patience
    with operator.started(*DOWNLOAD, "--json") as command:
        wait_until(logged(operator, "retry.attempt"), "the wait")
        ran = stopped(command, number)
    assert (ran.json["outcome"], ran.json["error"]["message"]) == ("failure", "interrupted")
    safe = safe_in(ran)
    assert ran.json["tiles_downloaded"] == safe > 0
    (last,) = [record for record in operator.records() if "interrupted" in record["kind"]]
    assert last["level"] == "ERROR"
    assert_goes_on(operator, provider, safe)


def test_invariant_17_a_signal_while_the_listing_waits(
    operator: AreaOperator, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = patience
    with operator.started(*DOWNLOAD) as command:
        wait_until(logged(operator, "retry.attempt"), "the wait")
        ran = stopped(command, signal.SIGTERM)
    assert "No tile was fetched" in ran.err
    assert_goes_on(operator, provider, 0)


@contextmanager
def silent(provider: ScriptedProvider, path: str) -> Iterator[threading.Event]:
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
def test_invariant_17_a_signal_during_a_read(
    operator: AreaOperator, provider: ScriptedProvider, where: str
) -> None:
    path = TILES if where == "listing" else path_of(provider.tiles[-1])
    with silent(provider, path) as asked, operator.started(*DOWNLOAD) as command:
        assert asked.wait(90)
        if where == "tile":
            wait_until(lambda: len(provider.tile_gets) == COUNT, "all other tiles")
        ran = stopped(command, signal.SIGINT)
    safe = 0 if where == "listing" else safe_in(ran)
    assert (safe > 0) == (where == "tile")
    assert_goes_on(operator, provider, safe)


@contextmanager
def no_row_can_be_written(database: Database) -> Iterator[Callable[[], None]]:
    """Hold up every commit until the block ends, or what it yields is called."""
    with database.engine.connect() as connection:
        connection.execute(text("LOCK TABLE tiles IN SHARE MODE"))
        yield connection.rollback


def a_commit_waits(database: Database) -> Callable[[], bool]:
    query = text(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM"
        " pg_database WHERE datname = current_database())"
    )

    def waits() -> bool:
        with database.reading() as connection:
            return bool(connection.execute(query).scalar_one())

    return waits


def test_invariant_17_a_signal_during_a_commit(
    operator: AreaOperator, provider: ScriptedProvider, database: Database
) -> None:
    with (
        no_row_can_be_written(database) as let_go,
        operator.started(*DOWNLOAD, "--json") as command,
    ):
        wait_until(a_commit_waits(database), "a commit")
        command.signalled(signal.SIGINT)
        time.sleep(0.5)
        assert command.process.poll() is None  # it does not leave its commit
        let_go()
        ran = command.ended()
    assert ran.code == 130
    safe = safe_in(ran)
    assert ran.json["tiles_downloaded"] == safe > 0
    assert_goes_on(operator, provider, safe)


def test_invariant_17_what_does_not_end_within_the_grace_is_ended(
    operator: AreaOperator, provider: ScriptedProvider, database: Database
) -> None:
    operator.settings["TILEFERRY_C11_STOP_GRACE_S"] = "1"
    with no_row_can_be_written(database), operator.started(*DOWNLOAD) as command:
        wait_until(a_commit_waits(database), "a commit")
        ran = stopped(command, signal.SIGTERM)
    assert "Stopped at once" in ran.err
    assert_goes_on(operator, provider, 0)


def test_invariant_17_a_second_signal_ends_it_at_once_and_is_still_safe(
    operator: AreaOperator, provider: ScriptedProvider, database: Database
) -> None:
    operator.settings["TILEFERRY_C11_STOP_GRACE_S"] = "60"
    with no_row_can_be_written(database), operator.started(*DOWNLOAD) as command:
        wait_until(a_commit_waits(database), "a commit")
        command.signalled(signal.SIGINT)
        time.sleep(0.2)
        ran = stopped(command, signal.SIGINT)
    assert "Stopped at once" in ran.err
    assert_goes_on(operator, provider, 0)


def test_invariant_17_signals_at_random_moments(
    operator: AreaOperator, provider: ScriptedProvider
) -> None:
    moments = random.Random(17)  # noqa: S311  # which moments is of no matter
    safe = 0
    for _ in range(3):
        provider.requests.clear()
        after = moments.randrange(1, max(2, COUNT - safe))
        with operator.started(*DOWNLOAD) as command:
            wait_until(
                lambda n=after, run=command.process: (  # type: ignore[misc]  # bound now
                    len(provider.tile_gets) >= n or run.poll() is not None
                ),
                "some tiles",
            )
            command.signalled(moments.choice(SIGNALS))
            ran = command.ended()
        if ran.code == 0:  # it was faster
            break
        assert ran.code == 130
        assert safe_in(ran) >= safe
        safe = safe_in(ran)
    else:
        assert_goes_on(operator, provider, safe)


def test_a_killed_download_leaves_no_promise_of_space_behind(
    operator: AreaOperator, provider: ScriptedProvider
) -> None:
    tiles_bytes = sum(len(f"{tile}") * 20 for tile in provider.tiles)
    operator.settings["TILEFERRY_C6_BUDGET_BYTES"] = str(tiles_bytes)
    operator.settings["TILEFERRY_C6_FREE_SPACE_RESERVE_BYTES"] = "0"
    with silent(provider, path_of(provider.tiles[-1])) as asked, operator.started(*DOWNLOAD) as run:
        assert asked.wait(90)
        run.signalled(signal.SIGKILL)
        assert run.ended().code == -signal.SIGKILL
    provider.always.clear()
    ran = operator.runs_here(*DOWNLOAD, "--json")
    assert (ran.code, ran.json["tiles_downloaded"]) == (0, COUNT)
