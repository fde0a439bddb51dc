"""What every FdrClient must do."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.disk_faults import UNSYNCED

from tileferry.adapters.filesystem.fdr import FileFdrClient
from tileferry.adapters.memory import ManualClock, MemoryFdrClient
from tileferry.application.ports.fdr import PAYLOAD_BYTES_MAX, FdrClient
from tileferry.domain.errors import InvalidValueError

GIVEUP = "c11.upload.giveup"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "file"])
def fdr(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[FdrClient]:
    if request.param == "memory":
        yield MemoryFdrClient(clock=clock, records_max=100)
    else:
        client = FileFdrClient(
            root=tmp_path, clock=clock, files_max=2, file_bytes_max=20_000, calls=UNSYNCED
        )
        yield client
        client.close()


def test_client_implements_port(fdr: FdrClient) -> None:
    assert isinstance(fdr, FdrClient)


def test_new_recorder_is_empty(fdr: FdrClient) -> None:
    assert list(fdr.records()) == []


def test_spec1_giveup_record_round_trips(fdr: FdrClient, clock: ManualClock) -> None:
    payload: dict[str, Any] = {
        "tile_id": "sat/15/1/2",
        "attempts": 5,
        "last_rejection_reason": "blurred ☁",
    }
    fdr.record(GIVEUP, payload, durable=True)
    (record,) = fdr.records()
    assert (record.sequence, record.recorded_at_s) == (1, clock.now())
    assert (record.kind, record.payload) == (GIVEUP, payload)


def test_records_are_returned_oldest_first_without_gaps(fdr: FdrClient, clock: ManualClock) -> None:
    for number in range(5):
        fdr.record("test.event", {"number": number}, durable=number % 2 == 0)
        clock.advance(1.5)
    found = list(fdr.records())
    assert [record.sequence for record in found] == [1, 2, 3, 4, 5]
    assert [record.payload["number"] for record in found] == list(range(5))
    assert found[-1].recorded_at_s - found[0].recorded_at_s == 6


def test_sequence_orders_records_after_clock_goes_back(fdr: FdrClient, clock: ManualClock) -> None:
    fdr.record("test.event", {})
    clock.set_wall_clock(clock.now() - 86_400)
    fdr.record("test.event", {})
    first, second = fdr.records()
    assert first.sequence < second.sequence
    assert first.recorded_at_s > second.recorded_at_s


def test_oldest_records_are_dropped_first(fdr: FdrClient) -> None:
    for number in range(1, 1_001):
        fdr.record("test.event", {"number": number, "text": "x" * 300})
    found = [record.sequence for record in fdr.records()]
    assert found == list(range(1_001 - len(found), 1_001))
    assert 50 <= len(found) <= 130


def test_record_is_independent_of_later_payload_changes(fdr: FdrClient) -> None:
    tiles = ["sat/1/0/0"]
    payload: dict[str, Any] = {"tiles": tiles}
    fdr.record("test.event", payload)
    tiles.append("sat/1/1/1")
    payload["more"] = 1
    (record,) = fdr.records()
    assert record.payload == {"tiles": ["sat/1/0/0"]}


@pytest.mark.parametrize(
    "payload",
    [
        {"nan": float("nan")},
        {"bytes": b"x"},
        {"text": "\ud800"},
        {7: "seven"},
        {"big": 2**2000},
        ["a", "list"],
        None,
        {"text": "x" * PAYLOAD_BYTES_MAX},
    ],
)
def test_invalid_payload_is_rejected_without_trace(fdr: FdrClient, payload: Any) -> None:
    fdr.record("test.before", {})
    with pytest.raises(InvalidValueError, match="FdrRecord"):
        fdr.record("test.event", payload, durable=True)
    fdr.record("test.after", {})
    assert [(record.sequence, record.kind) for record in fdr.records()] == [
        (1, "test.before"),
        (2, "test.after"),
    ]


def test_largest_allowed_payload_is_recorded(fdr: FdrClient) -> None:
    payload = {"text": "x" * (PAYLOAD_BYTES_MAX - len('{"text":""}'))}
    fdr.record("test.event", payload)
    assert [record.payload for record in fdr.records()] == [payload]


def nest_payload(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


def test_payload_depth_limit(fdr: FdrClient) -> None:
    fdr.record("test.event", nest_payload(31))
    with pytest.raises(InvalidValueError, match="deep"):
        fdr.record("test.event", nest_payload(32))
    assert [record.payload for record in fdr.records()] == [nest_payload(31)]


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "giveup",
        "C11.up",
        "c11..up",
        ".c11",
        "c11.",
        "c11.u p",
        "c11.a\n",
        "a" + ".a" * 32,
        None,
    ],
)
def test_invalid_kind_is_rejected(fdr: FdrClient, kind: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"FdrRecord\.kind"):
        fdr.record(kind, {})


def test_concurrent_records_are_numbered_without_gaps(fdr: FdrClient) -> None:
    def record(number: int) -> None:
        fdr.record("test.event", {"number": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(90)))
    found = list(fdr.records())
    assert [record.sequence for record in found] == list(range(1, 91))
    assert sorted(str(record.payload["number"]) for record in found) == sorted(map(str, range(90)))
