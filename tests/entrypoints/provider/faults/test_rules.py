"""When faults happen: rates that repeat exactly, and scripts that say what they mean."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.provider import RunningProvider, serve_provider

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.entrypoints.provider.faults import FAULTS, Call
from tileferry.entrypoints.provider.faults.rules import (
    FaultPlan,
    RequestInfo,
    parse_flag,
    parse_script,
    read_script,
)

TILES = "/api/satellite/tiles"


def make_request(y: int = 1, attempt: int = 1, call: Call = Call.TILE) -> RequestInfo:
    tile = TileId(source="a", zoom=15, x=1, y=y)
    return RequestInfo(call=call, target=f"{TILES}/15/1/{y}", tile=tile, attempt=attempt)


def find_hits(plan: FaultPlan, requests: list[RequestInfo]) -> list[bool]:
    return [plan.find_request_fault(request) is not None for request in requests]


def test_rate_hits_its_share_independent_of_order() -> None:
    requests = [make_request(y) for y in range(5_000)]
    plan = FaultPlan([parse_flag("503=0.1")], seed=7)
    first = find_hits(plan, requests)
    assert 400 < sum(first) < 600
    backwards = FaultPlan([parse_flag("503=0.1")], seed=7)
    assert find_hits(backwards, requests[::-1])[::-1] == first
    assert find_hits(FaultPlan([parse_flag("503=0.1")], seed=8), requests) != first


def test_rate_applies_per_attempt_unless_fault_is_lasting() -> None:
    attempts = [make_request(3, attempt) for attempt in range(1, 200)]
    assert 0 < sum(find_hits(FaultPlan([parse_flag("503=0.5")]), attempts)) < 199
    lasting = FaultPlan([parse_flag("404=0.5")])
    assert {
        sum(find_hits(lasting, [make_request(y, n) for n in range(1, 20)])) for y in range(20)
    } == {0, 19}


def test_rates_zero_and_one() -> None:
    requests = [make_request(y) for y in range(500)]
    assert sum(find_hits(FaultPlan([parse_flag("503=0")]), requests)) == 0
    assert sum(find_hits(FaultPlan([parse_flag("503=1")]), requests)) == 500
    assert sum(find_hits(FaultPlan([parse_flag("503")]), requests)) == 500


def test_rates_hold_under_concurrency_over_the_wire() -> None:
    paths = [f"{TILES}/15/19679/{y}" for y in range(11_090, 11_098)] * 3
    found = []
    for workers in (1, 4):
        with serve_provider({"fault": "503", "rate": 0.4}, seed=3) as provider:
            with provider.client() as client, ThreadPoolExecutor(workers) as pool:
                list(pool.map(client.get, paths))
            found.append({(line.path, line.attempt, line.status) for line in provider.requests})
    assert found[0] == found[1]
    assert {status for _, _, status in found[0]} == {200, 503}


def test_scripted_fault_is_limited_by_times(
    provider: RunningProvider, client: httpx.Client
) -> None:
    provider.set_faults({"tile": "15/1/2", "fault": "503", "times": 2})
    tiles = ("15/1/2", "15/1/3", "15/1/2", "15/1/2")
    assert [client.get(f"{TILES}/{tile}").status_code for tile in tiles] == [503, 200, 503, 200]


def test_script_matches_attempts_calls_and_paths() -> None:
    plan = FaultPlan(
        parse_script(
            [
                {"fault": "500", "tile": "15/1/1", "attempts": [2, 4]},
                {"fault": "502", "call": "listing"},
                {"fault": "503", "path": "*/15/1/9"},
            ]
        )
    )

    def name(request: RequestInfo) -> str | None:
        chosen = plan.find_request_fault(request)
        return None if chosen is None else chosen[0].name

    assert [name(make_request(1, attempt)) for attempt in range(1, 6)] == [
        None, "500", None, "500", None,
    ]  # fmt: skip
    assert name(RequestInfo(call=Call.LISTING, target=TILES)) == "502"
    assert name(RequestInfo(call=Call.UPLOAD, target=TILES)) is None
    assert (name(make_request(9)), name(make_request(8))) == ("503", None)


def test_first_matching_rule_wins() -> None:
    plan = FaultPlan(parse_script([{"fault": "500", "times": 1}, {"fault": "502"}]))
    chosen = [plan.find_request_fault(make_request()) for _ in range(3)]
    assert [choice[0].name for choice in chosen if choice] == ["500", "502", "502"]


def test_fault_applies_only_to_its_calls() -> None:
    upload = RequestInfo(call=Call.UPLOAD, target=TILES)
    assert FaultPlan([parse_flag("404=1")]).find_request_fault(upload) is None
    assert FaultPlan([parse_flag("lost-answer=1")]).find_request_fault(make_request()) is None
    assert FaultPlan([parse_flag("poison=1")]).find_request_fault(upload) is None
    refusal = FaultPlan([parse_flag("poison=1")]).find_refusal(make_request(call=Call.UPLOAD))
    assert refusal == ("poison", "the image cannot be ingested")


def test_script_is_read_from_file(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps([{"fault": "slow", "bytes_per_s": 9, "rate": 0.5}]))
    (rule,) = read_script(file)
    assert (rule.fault.name, rule.options, rule.rate) == ("slow", {"bytes_per_s": 9}, 0.5)
    for content in ("[", "{}", "[1]"):
        file.write_text(content)
        with pytest.raises(InvalidValueError):
            read_script(file)
    with pytest.raises(InvalidValueError, match=r"--faults-file: cannot be read"):
        read_script(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["teapot=0.1", "", "=0.1"])
def test_unknown_fault_is_rejected_with_known_names(text: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse_flag(text)
    assert "--fault" in str(refusal.value)
    for name in FAULTS:
        assert name in str(refusal.value)


@pytest.mark.parametrize("rate", ["", "2", "-0.1", "nan", "often"])
def test_rate_outside_zero_to_one_is_rejected(rate: str) -> None:
    with pytest.raises(InvalidValueError, match=r"--fault 503: must be a share from 0 to 1"):
        parse_flag(f"503={rate}")


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({}, r"faults\[0\]\.fault: is no fault"),
        ({"fault": 503}, r"faults\[0\]\.fault: is no fault"),
        ({"fault": "503", "speed": 1}, r"faults\[0\]\.speed: is nothing that fault 503"),
        ({"fault": "slow", "bytes_per_s": "9"}, r"\.bytes_per_s: must be a number above 0"),
        ({"fault": "slow", "bytes_per_s": 0}, r"\.bytes_per_s: must be a number above 0"),
        ({"fault": "503", "call": "ping"}, r"\.call: is no call that fault 503 happens to"),
        ({"fault": "404", "call": "upload"}, r"\.call: is no call that fault 404 happens to"),
        ({"fault": "503", "times": 0}, r"\.times: must be a whole number of at least 1"),
        ({"fault": "503", "times": True}, r"\.times: must be a whole number of at least 1"),
        ({"fault": "503", "attempts": 1}, r"\.attempts: must be a list of whole numbers"),
        ({"fault": "503", "attempts": ["1"]}, r"\.attempts: must be a list of whole numbers"),
        ({"fault": "503", "rate": 1.5}, r"\.rate: must be a share from 0 to 1"),
        ({"fault": "503", "rate": "1"}, r"\.rate: must be a share from 0 to 1"),
        ({"fault": "503", "tile": 7}, r"\.tile: must be text"),
        ({"fault": "503", "path": ""}, r"\.path: must be text"),
        ({"fault": "stale", "times": 1}, r"\.times: cannot be told to fault stale"),
        ({"fault": "stale", "path": "*"}, r"\.path: cannot be told to fault stale"),
        ({"fault": "nan", "tile": "15/1/1"}, r"\.tile: fault nan does not happen to single"),
        ({"fault": "503", "call": "upload", "tile": "15/1/1"}, r"\.tile: fault 503 does not"),
    ],
    ids=str,
)
def test_invalid_rule_is_rejected_by_name(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        parse_script([rule])
