"""A partition: its fields fit its status, or it cannot be built."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    PARTITION_STATUS_FIELDS,
    Partition,
    PartitionKey,
    PartitionStatus,
    get_readable_run,
)
from tileferry.domain.runs import RunId

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)
FILLED: dict[str, Any] = {
    "attempt_count": 2,
    "current_run_id": "r1",
    "active_run_id": "r2",
    "abandoned": True,
    "needs_review": True,
    "terminal_marker": "hopeless",
    "error_message": "bad hash",
}
MUST: dict[PartitionStatus, set[str]] = {
    PartitionStatus.PENDING: {"active_run_id"},
    PartitionStatus.SUCCESS: {"attempt_count", "current_run_id"},
    PartitionStatus.FAILED: {"error_message"},
}
MAY: dict[PartitionStatus, set[str]] = {
    PartitionStatus.PENDING: {"attempt_count", "current_run_id", "error_message"},
    PartitionStatus.SUCCESS: {"abandoned", "active_run_id", "error_message", "needs_review"},
    PartitionStatus.FAILED: {"abandoned", "attempt_count", "current_run_id", "terminal_marker"},
}


def make_partition(status: PartitionStatus, **fields: Any) -> Partition:
    base = {"last_run_id": "r2", "created_at": NOW, "updated_at": NOW}
    return Partition(key=KEY, status=status, **{**base, **fields})


def pick_fields(names: set[str]) -> dict[str, Any]:
    return {name: FILLED[name] for name in names}


def test_partition_key_text_has_four_parts() -> None:
    assert str(KEY) == "osm/acme/roads/2024-01-01"
    assert make_partition(PartitionStatus.PENDING, active_run_id="r2").subject == (
        "partition osm/acme/roads/2024-01-01"
    )


def test_partition_key_text_round_trips() -> None:
    assert PartitionKey.parse(str(KEY)) == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "osm",
        "osm/acme/roads",
        "osm/acme/2024-01-01",
        "osm/acme/roads/more/2024-01-01",
        "osm/acme/roads/2024-01-01/",
        "osm/acme/roads/20240101",
        "osm/acme/roads/2024-02-30",
        "osm/acme/roads/2024-W01-1",
        "osm/acme/roads/2024-01-01T00:00",
    ],
)
def test_malformed_key_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is not of the form source/customer/query/date"):
        PartitionKey.parse(text)


def test_key_text_with_invalid_name_is_rejected_by_field() -> None:
    with pytest.raises(InvalidValueError, match=r"PartitionKey\.customer_id: is not a plain name"):
        PartitionKey.parse("osm/a b/roads/2024-01-01")


NAMES = st.sampled_from(["a", "b", "a.b", "a-b"])
KEYS = st.builds(
    PartitionKey,
    source=NAMES,
    customer_id=NAMES,
    query_name=NAMES,
    logical_date=st.sampled_from([date(1, 1, 1), date(2024, 1, 1)]),
)


@given(one=KEYS, other=KEYS)
def test_key_text_is_unique_per_key(one: PartitionKey, other: PartitionKey) -> None:
    assert (str(one) == str(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("source", "a/b", "is not a plain name"),
        ("customer_id", "", "is not a plain name"),
        ("query_name", "..", "is not a plain name"),
        ("logical_date", "2024-01-01", "must be a date without a time"),
        ("logical_date", NOW, "must be a date without a time"),
    ],
)
def test_invalid_key_field_is_rejected(name: str, value: Any, problem: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        evolve(KEY, **{name: value})
    assert caught.value.field == f"PartitionKey.{name}"
    assert caught.value.value == value
    assert caught.value.problem == problem


def test_terminal_is_not_a_status() -> None:
    assert [status.value for status in PartitionStatus] == ["pending", "success", "failed"]


@pytest.mark.parametrize("status", PartitionStatus)
def test_status_determines_required_and_optional_fields(status: PartitionStatus) -> None:
    must, may = MUST[status], MAY[status]
    assert PARTITION_STATUS_FIELDS[status].required == must
    assert PARTITION_STATUS_FIELDS[status].optional == may
    whole = must | may - {"abandoned"}
    make_partition(status, **pick_fields(whole))
    for name in must:
        with pytest.raises(InvalidValueError) as caught:
            make_partition(status, **pick_fields(whole - {name}))
        assert caught.value.field == f"Partition.{name}"
        assert caught.value.problem == f"must be filled while the status is {status}"
    for name in FILLED.keys() - must - may:
        with pytest.raises(InvalidValueError) as caught:
            make_partition(status, **pick_fields(whole | {name}))
        assert caught.value.field == f"Partition.{name}"
        assert caught.value.problem == f"must be empty while the status is {status}"


def test_minimal_fields_per_status_are_accepted() -> None:
    make_partition(PartitionStatus.PENDING, active_run_id="r2")
    make_partition(PartitionStatus.SUCCESS, current_run_id="r2", attempt_count=1)
    make_partition(PartitionStatus.FAILED, error_message="bad", attempt_count=1)
    make_partition(PartitionStatus.FAILED, error_message="bad", abandoned=True)


@pytest.mark.parametrize(
    ("status", "fields", "name", "problem"),
    [
        (
            PartitionStatus.PENDING,
            {"active_run_id": "r1"},
            "active_run_id",
            "must be the newest run",
        ),
        (
            PartitionStatus.SUCCESS,
            {"current_run_id": "r2", "active_run_id": "r2", "attempt_count": 1},
            "active_run_id",
            "already has a verdict: it is the current run",
        ),
        (
            PartitionStatus.SUCCESS,
            {"current_run_id": "r1", "active_run_id": "r2", "attempt_count": 1, "abandoned": True},
            "abandoned",
            "must be false while a run is active",
        ),
        (
            PartitionStatus.FAILED,
            {"error_message": "bad"},
            "attempt_count",
            "must count the verdict on the current run",
        ),
        (
            PartitionStatus.FAILED,
            {"error_message": "bad", "abandoned": True, "current_run_id": "r1"},
            "attempt_count",
            "must count the verdict on the current run",
        ),
        (
            PartitionStatus.PENDING,
            {"active_run_id": "r2", "updated_at": NOW - timedelta(microseconds=1)},
            "updated_at",
            "is before created_at",
        ),
    ],
)
def test_contradictory_fields_are_rejected(
    status: PartitionStatus, fields: dict[str, Any], name: str, problem: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make_partition(status, **fields)
    assert caught.value.field == f"Partition.{name}"
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "osm/acme/roads/2024-01-01"),
        ("status", "pending"),
        ("attempt_count", -1),
        ("current_run_id", "a/b"),
        ("active_run_id", "a/b"),
        ("last_run_id", "a/b"),
        ("abandoned", 0),
        ("needs_review", 0),
        ("terminal_marker", ""),
        ("error_message", ""),
        ("created_at", NOW.replace(tzinfo=None)),
        ("updated_at", NOW.replace(tzinfo=None)),
    ],
)
def test_invalid_field_is_rejected_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        evolve(make_partition(PartitionStatus.PENDING, active_run_id="r2"), **{name: value})
    assert caught.value.field == f"Partition.{name}"


def test_consumers_read_only_success() -> None:
    fields: dict[str, Any] = {"current_run_id": "r1", "attempt_count": 1}
    success = make_partition(PartitionStatus.SUCCESS, **fields)
    pending = make_partition(PartitionStatus.PENDING, active_run_id="r2", **fields)
    failed = make_partition(PartitionStatus.FAILED, error_message="bad", **fields)
    assert get_readable_run(success) == RunId("r1")
    assert get_readable_run(pending) is None
    assert get_readable_run(failed) is None
