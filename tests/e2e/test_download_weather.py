"""Bad weather: one command downloads an area, whatever the provider does, as long as it recovers.

The provider is the reference provider; its record shows what it was asked for.
"""

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from support.download_operator import DownloadOperator, wait_until
from support.operator import CommandResult
from support.provider import RunningProvider, serve_provider
from support.scripted_provider import KEY

from tileferry.domain.retry import RetryBudget
from tileferry.domain.tiles import BBox, TileCoverage
from tileferry.entrypoints.provider.request_record import RequestLine

SOAK = os.environ.get("SOAK") == "1"
BOX = BBox(west=36.0, south=50.0, east=36.3, north=50.23)
FEW, SOME, MANY = 11, 13, 14 if not SOAK else 15  # 9, 72 and 255 or 986 tiles
OUTAGE_S = 60.0 if SOAK else 3.0
PATIENCE_S = 600.0
REQUESTS_MAX, THREADS_MAX = 8, 32
WEATHER: dict[str, tuple[int, list[dict[str, Any]]]] = {
    "20 % 429 with Retry-After": (
        MANY if SOAK else SOME,
        [{"fault": "429", "rate": 0.2, "retry_after": "0.1"}],
    ),
    "all together": (
        MANY,
        [
            {"fault": "429-bare", "rate": 0.06},
            {"fault": "429", "rate": 0.06, "retry_after": "0.1"},
            {"fault": "503", "rate": 0.08},
            {"fault": "reset", "rate": 0.05},
            {"fault": "stall", "rate": 0.03},
        ],
    ),
    "5 % of each": (
        MANY,
        [
            *({"fault": name, "rate": 0.05} for name in ("429-bare", "503", "reset")),
            {"fault": "slow", "rate": 0.05, "bytes_per_s": 20_000},
        ],
    ),
    "each tile answers 503 once": (
        SOME if SOAK else FEW,
        [{"fault": "503", "call": "tile", "attempts": [1]}],
    ),
}
if SOAK:  # "all together" has them too, each more seldom
    WEATHER |= {
        "20 % 429 without Retry-After": (MANY, [{"fault": "429-bare", "rate": 0.2}]),
        "20 % 503": (MANY, [{"fault": "503", "rate": 0.2}]),
        "10 % resets": (MANY, [{"fault": "reset", "rate": 0.1}]),
        "5 % stalls": (MANY, [{"fault": "stall", "rate": 0.05}]),
    }


def count_tiles(zoom: int) -> int:
    return TileCoverage(bbox=BOX, zoom_levels=[zoom]).count


@define
class Weather:
    """An operator who downloads from a provider in some weather."""

    operator: DownloadOperator
    provider: RunningProvider

    def create_command(self, zoom: int, *options: str) -> tuple[str, ...]:
        area = ("--bbox", str(BOX), "--zoom", str(zoom))
        return ("download", *area, "--flight", "F1", "--sector", "stable_rear", *options)

    def download(self, zoom: int, *options: str) -> CommandResult:
        with self.operator.start(*self.create_command(zoom, *options)) as command:
            return command.wait(PATIENCE_S)

    def read_log(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.operator.read_log() if record["kind"] == kind]

    def check_complete(self, ran: CommandResult, zoom: int) -> None:
        """Check that every tile was stored, and not requested again after that."""
        assert (ran.code, ran.json["outcome"]) == (0, "success"), ran.err
        assert ran.json["tiles_downloaded"] == ran.json["tiles_requested"] == count_tiles(zoom)
        assert ran.json["failures"] == []
        asked = self.requests_by_tile
        assert len(asked) == count_tiles(zoom)
        repeated = [line for lines in asked.values() for line in lines[:-1]]
        assert {line.fault is None for line in repeated} <= {False}, "each repeat follows a fault"

    @property
    def requests_by_tile(self) -> dict[str, list[RequestLine]]:
        found: dict[str, list[RequestLine]] = defaultdict(list)
        for line in self.provider.requests:
            if line.tile is not None:
                found[line.tile].append(line)
        return found


@pytest.fixture(scope="module")
def reference_provider() -> Iterator[RunningProvider]:
    with serve_provider(api_key=KEY) as provider:
        yield provider


@pytest.fixture
def weather(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> Iterator[Weather]:
    settings = {
        "TILEFERRY_C11_HTTP_TIMEOUT_S": "0.8",
        "TILEFERRY_C11_BACKOFF_BASE_S": "1" if SOAK else "0.2",
    }
    yield Weather(
        DownloadOperator(tmp_path, database_url, reference_provider.url, settings),
        reference_provider,
    )
    reference_provider.reset()


@pytest.mark.parametrize("name", WEATHER)
def test_invariant_38_one_command_completes_the_area(weather: Weather, name: str) -> None:
    zoom, faults = WEATHER[name]
    weather.provider.set_faults(*faults)
    weather.check_complete(weather.download(zoom, "--json", "--give-up-after", "1m"), zoom)


def test_invariants_22_38_outage_is_waited_out_at_a_tenth_of_the_load(weather: Weather) -> None:
    provider, zoom = weather.provider, MANY
    command = weather.create_command(zoom, "--json")
    with weather.operator.start(*command) as running:
        wait_until(lambda: len(provider.fetched) >= 40, "tiles are delivered")
        provider.set_faults({"fault": "503"})
        first = len(provider.requests)
        time.sleep(OUTAGE_S)
        last = len(provider.requests)
        provider.set_faults()
        ran = running.wait(PATIENCE_S)
    assert first < count_tiles(zoom), "the outage came too late"
    weather.check_complete(ran, zoom)
    began, ended = (datetime.fromisoformat(provider.requests[at].at) for at in (1, first - 1))
    normal_per_s = first / (ended - began).total_seconds()
    in_flight = REQUESTS_MAX + THREADS_MAX
    assert last - first <= 0.1 * normal_per_s * OUTAGE_S + RetryBudget().capacity + in_flight
    after = [line for line in provider.requests[last + in_flight :] if line.tile is not None]
    assert {line.fault for line in after} <= {None}, "afterwards the load is normal"


def test_waits_name_their_rule_in_log_and_audit(weather: Weather) -> None:
    weather.operator.settings["TILEFERRY_C11_RETRY_BUDGET_CAPACITY"] = "1"
    weather.operator.settings["TILEFERRY_C11_RETRY_BUDGET_EARNED_PER_SUCCESS"] = "0"
    weather.operator.settings["TILEFERRY_C11_RETRY_BUDGET_REFILL_PER_S"] = "4"
    weather.provider.set_faults(
        {"fault": "503", "call": "tile", "attempts": [1]},
        {"fault": "429", "call": "listing", "attempts": [1], "retry_after": "0.5"},
    )
    weather.check_complete(weather.download(FEW, "--json"), FEW)
    retries = weather.read_log("retry.attempt")
    assert {record["reason"] for record in retries} == {"backoff", "retry_budget", "retry_after"}
    assert {record["attempt"] for record in retries} == {1}
    assert {record["category"] for record in retries} == {"RETRY_API_REQUEST"}
    paces = weather.read_log("c11.download.pace")
    assert {record["cause"] for record in paces} >= {"503"}
    assert {record["rule"] for record in paces} == {"pace"}
    tail = weather.operator.run("audit", "tail", "--limit", "1000", "--json").json["entries"]
    decisions = [
        entry["event"]["decision_record"]["decision"]
        for entry in tail
        if entry["event"]["event_type"] == "retry_attempt"
    ]
    assert {decision["reason"] for decision in decisions} >= {"retry_budget", "retry_after"}


def test_session_gives_up_and_says_what_is_missing(weather: Weather) -> None:
    area = TileCoverage(bbox=BOX, zoom_levels=[FEW])
    bad = list(area.tiles("satellite"))[3]
    weather.provider.set_faults({"fault": "wrong-digest", "tile": str(bad).partition("/")[2]})
    weather.operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "0"
    ran = weather.download(FEW, "--give-up-after", "5s")
    assert ran.code == 3
    total = count_tiles(FEW)
    assert f"{total - 1} tiles are safe." in ran.err
    assert "Gave up: nothing improved for" in ran.err
    last = ran.err.strip().splitlines()[-1]
    assert last == f"Missing: 1 of {total} tiles: 1 sha256 mismatch ({bad})."
    tried = weather.provider.fetched[str(bad).partition("/")[2]]
    assert tried >= 2, "it was tried in several passes"
    assert sum(weather.provider.fetched.values()) == total - 1 + tried


def test_once_makes_one_pass(weather: Weather) -> None:
    weather.provider.set_faults({"fault": "503", "call": "listing"})
    weather.operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "1"
    ran = weather.download(FEW, "--once")
    assert (ran.code, len(weather.provider.requests)) == (5, 2)


def test_interrupt_between_passes_ends_the_command_at_once(weather: Weather) -> None:
    weather.provider.set_faults({"fault": "503", "call": "listing"})
    weather.operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "0"
    with weather.operator.start(*weather.create_command(FEW)) as running:
        wait_until(lambda: len(weather.provider.requests) >= 2, "a second pass")
        began_s = time.monotonic()
        running.send_signal(signal.SIGINT)
        ran = running.wait()
    assert ran.code == 130
    assert time.monotonic() - began_s < 5
    assert "Stopped." in ran.err
