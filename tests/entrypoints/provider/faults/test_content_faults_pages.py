"""Every fault of a listing, seen on the wire."""

import json

import httpx
import pytest
from support.provider import RunningProvider
from support.provider_requests import FAULT_CHECKS, checks_fault, get_listing

from tileferry.entrypoints.provider.faults.content_faults import PAGE_FAULTS


@pytest.mark.parametrize("name", [fault.name for fault in PAGE_FAULTS])
def test_page_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    FAULT_CHECKS[name](provider, client)


@checks_fault("missing-field")
def check_missing_field(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "missing-field", "field": "x"})
    first, second, *_ = get_listing(client).json()["tiles"]
    assert set(second) - set(first) == {"x"}


@checks_fault("renamed-field")
def check_renamed_field(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "renamed-field"})
    first, second, *_ = get_listing(client).json()["tiles"]
    assert set(second) ^ set(first) == {"produced_at", "made_at"}


def check_text_fault(name: str, expected: str) -> None:
    def check(provider: RunningProvider, client: httpx.Client) -> None:
        provider.set_faults({"fault": name})
        assert expected in get_listing(client).text

    FAULT_CHECKS[name] = check


check_text_fault("nan", '"resolution_m_per_px": NaN')
check_text_fault("infinity", '"resolution_m_per_px": Infinity')
check_text_fault("huge-int", '"estimated_bytes": 1' + 400 * "0" + "}")
check_text_fault("wrong-kind", '"x": "seven"')
check_text_fault("out-of-range", '"x": 1099511627776')
check_text_fault("nul", '"produced_at": "2026-01-01T00:00:00Z\\u0000"')
check_text_fault("surrogate", '"produced_at": "\\ud800"')
check_text_fault("control-text", '"produced_at": "\\u001b[2Jgone\\n\\u202e"')
check_text_fault("unasked-tile", '{"z": 20, ')
check_text_fault("duplicate-key", '{"z": 3, "z": 14, ')


@checks_fault("repeated-tile")
def check_repeated_tile(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "repeated-tile"})
    tiles = get_listing(client).json()["tiles"]
    assert tiles[0] == tiles[1] != tiles[2]


@checks_fault("huge-page")
def check_huge_page(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "huge-page", "items": 5_000})
    assert len(get_listing(client).json()["tiles"]) == 5_000


@checks_fault("repeated-cursor")
def check_repeated_cursor(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "repeated-cursor"})
    cursor = get_listing(client).json()["next"]
    assert cursor is not None
    assert [get_listing(client, cursor=cursor).json()["next"] for _ in range(3)] == [cursor] * 3


@checks_fault("endless")
def check_endless(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "endless"})
    cursors, page = [], get_listing(client, zoom="14").json()
    tiles_first = page["tiles"]
    tiles_again = 0
    for _ in range(20):
        cursors.append(page["next"])
        page = get_listing(client, zoom="14", cursor=page["next"]).json()
        tiles_again += page["tiles"] == tiles_first
    assert len(set(cursors)) == 20
    assert tiles_again >= 2


@checks_fault("garbage-json", "not-utf8")
def check_garbage(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "garbage-json"})
    garbage = get_listing(client).content
    assert garbage.startswith(b"<html>")
    provider.set_faults({"fault": "not-utf8"})
    for content in (garbage, get_listing(client).content):
        with pytest.raises(ValueError, match=r"Expecting value|can't decode|codec"):
            json.loads(content.decode("utf-8"))


@checks_fault("deep-json")
def check_deep_json(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "deep-json"})
    assert get_listing(client).content == b"[" * 100_000 + b"]" * 100_000
