"""What every FdrClient must do."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.failing_calls import UNSYNCED

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


def test_it_is_a_recorder(fdr: FdrClient) -> None:
    assert isinstance(fdr, FdrClient)


def test_a_new_recorder_is_empty(fdr: FdrClient) -> None:
    assert list(fdr.records()) == []


def test_spec1_a_giveup_is_read_back_as_it_was_recorded(fdr: FdrClient, clock: ManualClock) -> None:
    payload: dict[str, Any] = {
        "tile_id": "sat/15/1/2",
        "attempts": 5,
        "last_rejection_reason": "blurred ☁",
    }
    fdr.record(GIVEUP, payload, durable=True)
    (record,) = fdr.records()
    assert (record.sequence, record.recorded_at_s) == (1, clock.now())
    assert (record.kind, record.payload) == (GIVEUP, payload)


def test_records_come_back_oldest_first_and_numbered_without_gaps(
    fdr: FdrClient, clock: ManualClock
) -> None:
    for number in range(5):
        fdr.record("test.event", {"number": number}, durable=number % 2 == 0)
        clock.pass_time(1.5)
    found = list(fdr.records())
    assert [record.sequence for record in found] == [1, 2, 3, 4, 5]
    assert [record.payload["number"] for record in found] == list(range(5))
    assert found[-1].recorded_at_s - found[0].recorded_at_s == 6


def test_the_sequence_orders_records_though_the_clock_went_back(
    fdr: FdrClient, clock: ManualClock
) -> None:
    fdr.record("test.event", {})
    clock.set_wall_clock(clock.now() - 86_400)
    fdr.record("test.event", {})
    first, second = fdr.records()
    assert first.sequence < second.sequence
    assert first.recorded_at_s > second.recorded_at_s


def test_the_oldest_make_room(fdr: FdrClient) -> None:
    for number in range(1, 1_001):
        fdr.record("test.event", {"number": number, "text": "x" * 300})
    found = [record.sequence for record in fdr.records()]
    assert found == list(range(1_001 - len(found), 1_001))
    assert 50 <= len(found) <= 130


def test_what_happens_to_the_payload_later_does_not_change_the_record(fdr: FdrClient) -> None:
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
def test_a_payload_that_cannot_be_recorded_is_refused_and_leaves_no_trace(
    fdr: FdrClient, payload: Any
) -> None:
    fdr.record("test.before", {})
    with pytest.raises(InvalidValueError, match="FdrRecord"):
        fdr.record("test.event", payload, durable=True)
    fdr.record("test.after", {})
    assert [(record.sequence, record.kind) for record in fdr.records()] == [
        (1, "test.before"),
        (2, "test.after"),
    ]


def test_the_largest_payload_is_recorded(fdr: FdrClient) -> None:
    payload = {"text": "x" * (PAYLOAD_BYTES_MAX - len('{"text":""}'))}
    fdr.record("test.event", payload)
    assert [record.payload for record in fdr.records()] == [payload]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


def test_the_deepest_payload_is_the_same_for_all(fdr: FdrClient) -> None:
    fdr.record("test.event", nested(31))
    with pytest.raises(InvalidValueError, match="deep"):
        fdr.record("test.event", nested(32))
    assert [record.payload for record in fdr.records()] == [nested(31)]


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
def test_a_kind_is_names_with_dots(fdr: FdrClient, kind: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"FdrRecord\.kind"):
        fdr.record(kind, {})


def test_threads_may_record_at_the_same_time(fdr: FdrClient) -> None:
    def record(number: int) -> None:
        fdr.record("test.event", {"number": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(90)))
    found = list(fdr.records())
    assert [record.sequence for record in found] == list(range(1, 91))
    assert sorted(str(record.payload["number"]) for record in found) == sorted(map(str, range(90)))
