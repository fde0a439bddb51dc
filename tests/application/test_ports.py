"""The values and the refusals that come with the ports."""

from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest
from attrs import evolve
from support.control_plane import partition_key
from support.raw_partitions import AREA, RUN

from tileferry.adapters.memory import ManualClock
from tileferry.application.ports.fdr import KIND_CHARS_MAX, PAYLOAD_BYTES_MAX, FdrRecord
from tileferry.application.ports.figures import StorageFigures
from tileferry.application.ports.journal import check_journal_name
from tileferry.application.ports.raw_partitions import (
    AsOfClock,
    check_run_id,
    refuse_other_area,
    refuse_sealed,
)
from tileferry.application.ports.tiles import TileMetadataStore
from tileferry.application.ports.work import PartitionFilter, PartitionQuery
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.partitions import PartitionStatus, enqueue
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import TileId

NAME = f"F1__{'ab' * 8}.json"
PENDING = enqueue(
    partition_key(7), RunId("run-1"), actor=Actor.SCHEDULER, now=datetime(2026, 3, 8, tzinfo=UTC)
).after


def make_record(kind: Any = "c11.upload.giveup", payload: Any = None) -> FdrRecord:
    return FdrRecord(sequence=1, recorded_at_s=1.0, kind=kind, payload=payload or {})


@pytest.mark.parametrize("kind", ["", "giveup", "C11.giveup", f"a.{'b' * KIND_CHARS_MAX}", 7])
def test_invalid_event_kind_is_rejected(kind: Any) -> None:
    with pytest.raises(InvalidValueError, match="is not an event kind"):
        make_record(kind=kind)


def test_record_payload_is_copied() -> None:
    given = {"tiles": ["a"]}
    made = make_record(payload=given)
    given["tiles"].append("b")
    assert made.payload == {"tiles": ["a"]}


@pytest.mark.parametrize(
    ("payload", "problem"),
    [([1], "must be a mapping"), ({"text": "x" * PAYLOAD_BYTES_MAX}, "must be at most")],
)
def test_invalid_or_oversized_payload_is_rejected(payload: Any, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        make_record(payload=payload)


@pytest.mark.parametrize("name", ["", "F1.json", f"../{NAME}", f"..{NAME[2:]}", NAME.upper(), 7])
def test_invalid_journal_name_is_rejected(name: Any) -> None:
    assert check_journal_name(NAME) == NAME
    with pytest.raises(InvalidValueError, match="is not of the form"):
        check_journal_name(name)


def test_raw_partition_id_and_reopening_checks() -> None:
    check_run_id(RUN)
    with pytest.raises(InvalidValueError, match="is not a plain name"):
        check_run_id(RunId("../run-1"))
    with pytest.raises(StorageError, match="it is sealed"):
        refuse_sealed(PurePosixPath("/raw/run-1"))
    with pytest.raises(
        InvalidValueError, match="differs from the area that run run-1 started with"
    ):
        refuse_other_area(RUN, AREA)


def test_store_without_upload_attempts_raises_not_implemented() -> None:
    older: Any = type("Older", (TileMetadataStore,), {})()
    with pytest.raises(NotImplementedError, match="Older does not count upload attempts"):
        older.increment_upload_attempts(TileId(source="s", zoom=1, x=0, y=0))


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (PartitionFilter(), True),
        (PartitionFilter(source="osm", customer_id="acme", query_name="city"), True),
        (PartitionFilter(source="other"), False),
        (PartitionFilter(first=date(2026, 3, 7), last=date(2026, 3, 7)), True),
        (PartitionFilter(first=date(2026, 3, 8)), False),
        (PartitionFilter(last=date(2026, 3, 6)), False),
        (PartitionFilter(statuses=[PartitionStatus.PENDING]), True),
        (PartitionFilter(statuses=[PartitionStatus.FAILED]), False),
        (PartitionFilter(after=partition_key(6)), True),
        (PartitionFilter(after=partition_key(7)), False),
        (PartitionFilter(after=evolve(partition_key(6), source="zzz")), False),
    ],
)
def test_partition_filter_matches(wanted: PartitionFilter, *, taken: bool) -> None:
    assert wanted.matches(PENDING) is taken


def test_time_of_a_past_day_stops_at_its_end() -> None:
    day = date(2026, 3, 1)
    end_s = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
    clock = ManualClock(end_s - 60)
    as_of = AsOfClock(clock, day)
    assert as_of.now() == end_s - 60
    clock.advance(86_400)
    assert as_of.now() == end_s
    before_s = as_of.monotonic()
    as_of.sleep(5)
    assert as_of.monotonic() == before_s + 5


def test_no_audit_event_waits_unless_it_is_said() -> None:
    figures = StorageFigures(cache_bytes=1, budget_bytes=2, free_bytes=3, reserve_bytes=4)
    assert figures.outbox_bytes == {}


def test_query_of_partitions_is_written_as_their_common_path() -> None:
    query = PartitionQuery(source="sat", customer_id="acme", query_name="north")
    assert str(query) == "sat/acme/north"
