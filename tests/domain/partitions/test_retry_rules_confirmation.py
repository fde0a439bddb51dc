"""The safety rails of the operator: a count for many partitions, raw data for a retry."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import ConfirmationNeededError, NoRawPartitionError, Remedy
from tileferry.domain.partitions import (
    LARGE_RANGE,
    Partition,
    PartitionKey,
    PartitionStatus,
    check_confirmation,
    check_raw_partition,
)
from tileferry.domain.runs import RunId

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)


def make_failed_partition(*, abandoned: bool) -> Partition:
    return Partition(
        key=KEY,
        status=PartitionStatus.FAILED,
        abandoned=abandoned,
        attempt_count=0 if abandoned else 1,
        error_message="bad",
        last_run_id=RunId("r7"),
        created_at=NOW,
        updated_at=NOW,
    )


def test_large_range_requires_confirmed_count() -> None:
    assert LARGE_RANGE == 10
    check_confirmation(LARGE_RANGE - 1, None)
    with pytest.raises(ConfirmationNeededError) as caught:
        check_confirmation(LARGE_RANGE, None)
    assert (caught.value.count, caught.value.confirmed) == (10, None)
    check_confirmation(LARGE_RANGE, LARGE_RANGE)


@given(count=st.integers(0, 100_000), confirmed=st.integers(-1, 100_000))
def test_wrong_count_is_rejected_for_any_range(count: int, confirmed: int) -> None:
    check_confirmation(count, count)
    if confirmed != count:
        with pytest.raises(ConfirmationNeededError) as caught:
            check_confirmation(count, confirmed)
        assert (caught.value.count, caught.value.confirmed) == (count, confirmed)


@pytest.mark.parametrize("abandoned", [False, True])
def test_retry_without_raw_partition_is_rejected(*, abandoned: bool) -> None:
    partition = make_failed_partition(abandoned=abandoned)
    check_raw_partition(partition, has_raw=True)
    with pytest.raises(NoRawPartitionError) as caught:
        check_raw_partition(partition, has_raw=False)
    assert caught.value.partition == "partition osm/acme/roads/2024-01-01"
    assert caught.value.run_id == "r7"
    assert caught.value.remedy is Remedy.APPLY_BACKFILL
