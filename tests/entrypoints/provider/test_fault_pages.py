"""Every fault of a listing, seen on the wire."""

import json

import httpx
import pytest
from support.fault_calls import SEEN, listing, sees
from support.provider import RunningProvider

from tileferry.entrypoints.provider.faults.pages import PAGE_FAULTS


@pytest.mark.parametrize("name", [fault.name for fault in PAGE_FAULTS])
def test_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    SEEN[name](provider, client)


@sees("missing-field")
def _missing_field(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "missing-field", "field": "x"})
    first, second, *_ = listing(client).json()["tiles"]
    assert set(second) - set(first) == {"x"}


@sees("renamed-field")
def _renamed_field(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "renamed-field"})
    first, second, *_ = listing(client).json()["tiles"]
    assert set(second) ^ set(first) == {"produced_at", "made_at"}


def _text(name: str, expected: str) -> None:
    def check(provider: RunningProvider, client: httpx.Client) -> None:
        provider.misbehave({"fault": name})
        assert expected in listing(client).text

    SEEN[name] = check


_text("nan", '"resolution_m_per_px": NaN')
_text("infinity", '"resolution_m_per_px": Infinity')
_text("huge-int", '"estimated_bytes": 1' + 400 * "0" + "}")
_text("wrong-kind", '"x": "seven"')
_text("out-of-range", '"x": 1099511627776')
_text("nul", '"produced_at": "2026-01-01T00:00:00Z\\u0000"')
_text("surrogate", '"produced_at": "\\ud800"')
_text("control-text", '"produced_at": "\\u001b[2Jgone\\n\\u202e"')
_text("unasked-tile", '{"z": 20, ')
_text("duplicate-key", '{"z": 3, "z": 14, ')


@sees("repeated-tile")
def _repeated_tile(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "repeated-tile"})
    tiles = listing(client).json()["tiles"]
    assert tiles[0] == tiles[1] != tiles[2]


@sees("huge-page")
def _huge_page(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "huge-page", "items": 5_000})
    assert len(listing(client).json()["tiles"]) == 5_000


@sees("repeated-cursor")
def _repeated_cursor(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "repeated-cursor"})
    cursor = listing(client).json()["next"]
    assert cursor is not None
    assert [listing(client, cursor=cursor).json()["next"] for _ in range(3)] == [cursor] * 3


@sees("endless")
def _endless(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "endless"})
    cursors, page = [], listing(client, zoom="14").json()
    tiles_first = page["tiles"]
    tiles_again = 0
    for _ in range(20):
        cursors.append(page["next"])
        page = listing(client, zoom="14", cursor=page["next"]).json()
        tiles_again += page["tiles"] == tiles_first
    assert len(set(cursors)) == 20
    assert tiles_again >= 2


@sees("garbage-json", "not-utf8")
def _garbage(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "garbage-json"})
    garbage = listing(client).content
    assert garbage.startswith(b"<html>")
    provider.misbehave({"fault": "not-utf8"})
    for content in (garbage, listing(client).content):
        with pytest.raises(ValueError, match=r"Expecting value|can't decode|codec"):
            json.loads(content.decode("utf-8"))


@sees("deep-json")
def _deep(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "deep-json"})
    assert listing(client).content == b"[" * 100_000 + b"]" * 100_000
