"""When faults happen: rates that repeat exactly, and scripts that say what they mean."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.provider import RunningProvider, running_provider

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.entrypoints.provider.faults import FAULTS, Call
from tileferry.entrypoints.provider.faults.plan import Asked, FaultPlan
from tileferry.entrypoints.provider.faults.scripts import rule_of_flag, rules_of, rules_of_file

TILES = "/api/satellite/tiles"


def asked(y: int = 1, attempt: int = 1, call: Call = Call.TILE) -> Asked:
    tile = TileId(source="a", zoom=15, x=1, y=y)
    return Asked(call=call, target=f"{TILES}/15/1/{y}", tile=tile, attempt=attempt)


def hits(plan: FaultPlan, requests: list[Asked]) -> list[bool]:
    return [plan.for_request(request) is not None for request in requests]


def test_a_rate_hits_about_its_share_and_the_same_requests_in_any_order() -> None:
    requests = [asked(y) for y in range(5_000)]
    plan = FaultPlan([rule_of_flag("503=0.1")], seed=7)
    first = hits(plan, requests)
    assert 400 < sum(first) < 600
    backwards = FaultPlan([rule_of_flag("503=0.1")], seed=7)
    assert hits(backwards, requests[::-1])[::-1] == first
    assert hits(FaultPlan([rule_of_flag("503=0.1")], seed=8), requests) != first


def test_a_rate_draws_anew_for_each_attempt_unless_the_fault_lasts() -> None:
    attempts = [asked(3, attempt) for attempt in range(1, 200)]
    assert 0 < sum(hits(FaultPlan([rule_of_flag("503=0.5")]), attempts)) < 199
    lasting = FaultPlan([rule_of_flag("404=0.5")])
    assert {sum(hits(lasting, [asked(y, n) for n in range(1, 20)])) for y in range(20)} == {0, 19}


def test_rates_of_none_and_of_all() -> None:
    requests = [asked(y) for y in range(500)]
    assert sum(hits(FaultPlan([rule_of_flag("503=0")]), requests)) == 0
    assert sum(hits(FaultPlan([rule_of_flag("503=1")]), requests)) == 500
    assert sum(hits(FaultPlan([rule_of_flag("503")]), requests)) == 500


def test_rates_hold_under_concurrency_over_the_wire() -> None:
    paths = [f"{TILES}/15/19679/{y}" for y in range(11_090, 11_098)] * 3
    found = []
    for workers in (1, 4):
        with running_provider({"fault": "503", "rate": 0.4}, seed=3) as provider:
            with provider.client() as client, ThreadPoolExecutor(workers) as pool:
                list(pool.map(client.get, paths))
            found.append({(line.path, line.attempt, line.status) for line in provider.requests})
    assert found[0] == found[1]
    assert {status for _, _, status in found[0]} == {200, 503}


def test_a_script_says_twice_then_fine(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"tile": "15/1/2", "fault": "503", "times": 2})
    tiles = ("15/1/2", "15/1/3", "15/1/2", "15/1/2")
    assert [client.get(f"{TILES}/{tile}").status_code for tile in tiles] == [503, 200, 503, 200]


def test_a_script_names_attempts_calls_and_paths() -> None:
    plan = FaultPlan(
        rules_of(
            [
                {"fault": "500", "tile": "15/1/1", "attempts": [2, 4]},
                {"fault": "502", "call": "listing"},
                {"fault": "503", "path": "*/15/1/9"},
            ]
        )
    )

    def name(request: Asked) -> str | None:
        chosen = plan.for_request(request)
        return None if chosen is None else chosen[0].name

    assert [name(asked(1, attempt)) for attempt in range(1, 6)] == [
        None, "500", None, "500", None,
    ]  # fmt: skip
    assert name(Asked(call=Call.LISTING, target=TILES)) == "502"
    assert name(Asked(call=Call.UPLOAD, target=TILES)) is None
    assert (name(asked(9)), name(asked(8))) == ("503", None)


def test_the_first_rule_that_matches_decides() -> None:
    plan = FaultPlan(rules_of([{"fault": "500", "times": 1}, {"fault": "502"}]))
    chosen = [plan.for_request(asked()) for _ in range(3)]
    assert [choice[0].name for choice in chosen if choice] == ["500", "502", "502"]


def test_a_fault_happens_only_where_it_can() -> None:
    upload = Asked(call=Call.UPLOAD, target=TILES)
    assert FaultPlan([rule_of_flag("404=1")]).for_request(upload) is None
    assert FaultPlan([rule_of_flag("lost-answer=1")]).for_request(asked()) is None
    assert FaultPlan([rule_of_flag("poison=1")]).for_request(upload) is None
    refusal = FaultPlan([rule_of_flag("poison=1")]).refusal(asked(call=Call.UPLOAD))
    assert refusal == ("poison", "the image cannot be ingested")


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps([{"fault": "slow", "bytes_per_s": 9, "rate": 0.5}]))
    (rule,) = rules_of_file(file)
    assert (rule.fault.name, rule.options, rule.rate) == ("slow", {"bytes_per_s": 9}, 0.5)
    for content in ("[", "{}", "[1]"):
        file.write_text(content)
        with pytest.raises(InvalidValueError):
            rules_of_file(file)
    with pytest.raises(InvalidValueError, match=r"--faults-file: cannot be read"):
        rules_of_file(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["teapot=0.1", "", "=0.1"])
def test_an_unknown_name_lists_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        rule_of_flag(text)
    assert "--fault" in str(refusal.value)
    for name in FAULTS:
        assert name in str(refusal.value)


@pytest.mark.parametrize("rate", ["", "2", "-0.1", "nan", "often"])
def test_a_rate_is_a_share(rate: str) -> None:
    with pytest.raises(InvalidValueError, match=r"--fault 503: must be a share from 0 to 1"):
        rule_of_flag(f"503={rate}")


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
        ({"fault": "503", "times": 0}, r"\.times: must be a whole number from 1 up"),
        ({"fault": "503", "times": True}, r"\.times: must be a whole number from 1 up"),
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
def test_a_rule_that_cannot_be_is_refused_by_name(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        rules_of([rule])
