"""The fair order, and the gates that a rate-limited source closes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RUN_POLICY, Final, RateLimited, Retryable
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    SourceGate,
    WorkerId,
    batch_of,
    eligible,
    fair_order,
    is_due,
)

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)


def january(day: int) -> datetime:
    return datetime(2024, 1, day, tzinfo=UTC)


def new(
    run_id: str,
    submitted: datetime,
    *,
    priority: RunPriority = RunPriority.FRESH,
    source: str = "osm",
    kind: RunKind = RunKind.ACQUIRE_PARTITION,
) -> Run:
    return Run(
        run_id=RunId(run_id), kind=kind, source=source, submitted_date=submitted, priority=priority
    )


def retry(run_id: str, submitted: datetime, next_retry_at: datetime | None) -> Run:
    return Run(
        run_id=RunId(run_id),
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=submitted,
        status=RunStatus.ERROR,
        error_class="retryable",
        error_message="boom",
        next_retry_at=next_retry_at,
        retry_count=1,
        lease_epoch=1,
    )


def ids(runs: list[Run]) -> list[str]:
    return [run.run_id for run in runs]


def test_spec4_ordering_example() -> None:
    queue = [
        retry("not-ready-yet", january(4), january(6)),
        new("new-2", january(4)),
        new("new-1", january(3)),
        retry("oldest-retry-ready", january(1), january(5)),
    ]
    for now in (january(5), NOW):
        assert ids(eligible(queue, now)) == ["oldest-retry-ready", "new-1", "new-2"]
        assert eligible(queue, now)[0] == queue[-1]
    assert ids(eligible(queue, january(6))) == [
        "oldest-retry-ready",
        "new-1",
        "new-2",
        "not-ready-yet",
    ]


def test_spec4_an_old_retry_is_not_passed_over_for_a_run_submitted_just_now() -> None:
    old = retry("old", NOW - timedelta(days=3), NOW)
    fresh = new("fresh", NOW - timedelta(minutes=5))
    assert eligible([fresh, old], NOW) == [old, fresh]
    assert eligible([fresh, old], NOW - TICK) == [fresh]


def test_spec4_a_permanent_error_and_runs_in_work_are_never_next() -> None:
    held = Run(
        run_id=RunId("held"),
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=january(1),
        status=RunStatus.PROCESSING,
        lease_owner=WorkerId("w1"),
        lease_expires_at=january(2),
        lease_epoch=1,
    )
    assert eligible([retry("given-up", january(1), None), held], NOW) == []
    assert eligible([], NOW) == []


def test_backfill_never_starves_fresh_work() -> None:
    queue = [
        new("backfill-old", january(1), priority=RunPriority.BACKFILL),
        new("backfill-new", january(2), priority=RunPriority.BACKFILL),
        new("fresh-new", january(4)),
        new("fresh-old", january(3)),
    ]
    expected = ["fresh-old", "fresh-new", "backfill-old", "backfill-new"]
    assert ids(eligible(queue, NOW)) == expected


def test_the_id_makes_the_order_total() -> None:
    queue = [new("b", january(1)), new("a", january(1))]
    assert ids(eligible(queue, NOW)) == ["a", "b"]
    assert fair_order(queue[0]) == (RunPriority.FRESH, january(1), "b")


def test_spec4_phase5_filtering_by_allowed_kinds() -> None:
    queue = [new(kind.value, january(1), kind=kind) for kind in RunKind]
    assert ids(eligible(queue, NOW)) == ["acquire_partition", "download_area", "upload_flight"]
    assert ids(eligible(queue, NOW, kinds={RunKind.UPLOAD_FLIGHT})) == ["upload_flight"]
    assert eligible(queue, NOW, kinds={RunKind.UPLOAD_FLIGHT}) == [queue[2]]
    assert eligible(queue, NOW, kinds=()) == []


def test_other_runs_of_a_closed_source_wait_uncharged() -> None:
    queue = [new("slow", january(1), source="slow"), new("other", january(2), source="other")]
    gate = SourceGate(source="slow").after(RateLimited(30.0), now=NOW)
    assert gate == SourceGate(source="slow", closed_until=NOW + 30 * SECOND)
    assert ids(eligible(queue, NOW, [gate])) == ["other"]
    assert eligible(queue, NOW, [gate]) == [queue[1]]
    assert eligible(queue[:1], NOW, [gate]) == []
    # Waiting has changed nothing about the run: it is next again once the gate opens.
    assert eligible(queue, NOW + 30 * SECOND, [gate])[0] == queue[0]


def test_a_gate_is_open_from_the_instant_it_promised() -> None:
    gate = SourceGate(source="osm", closed_until=NOW)
    assert [gate.is_open(at) for at in (NOW - TICK, NOW, NOW + TICK)] == [False, True, True]
    assert SourceGate(source="osm").is_open(NOW)


def test_only_a_wait_that_the_source_asked_for_closes_its_gate() -> None:
    gate = SourceGate(source="osm", closed_until=NOW)
    for error in (Final(), Retryable(), RateLimited()):
        assert gate.after(error, now=NOW + SECOND) is gate


def test_a_gate_never_opens_earlier_than_promised() -> None:
    gate = SourceGate(source="osm").after(RateLimited(60.0), now=NOW)
    assert gate.after(RateLimited(59.0), now=NOW) is gate
    assert gate.after(RateLimited(60.0), now=NOW) is gate
    later = gate.after(RateLimited(60.0), now=NOW + SECOND)
    assert later == SourceGate(source="osm", closed_until=NOW + 61 * SECOND)


def test_a_source_cannot_close_its_gate_for_longer_than_the_policy_allows() -> None:
    gate = SourceGate(source="osm").after(RateLimited(1e9), now=NOW)
    assert RUN_POLICY.max_retry_after_s == 86_400.0
    assert gate.closed_until == NOW + 86_400 * SECOND


@pytest.mark.parametrize(
    ("name", "value"), [("source", "a/b"), ("closed_until", NOW.replace(tzinfo=None))]
)
def test_a_gate_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        SourceGate(**{"source": "osm", name: value})
    assert caught.value.field == f"SourceGate.{name}"


@given(
    waits=st.lists(
        st.tuples(st.integers(0, 1000), st.floats(0, 100_000)),
        min_size=1,
        max_size=10,
    )
)
def test_a_gate_closes_until_the_latest_wait(waits: list[tuple[int, float]]) -> None:
    gate = SourceGate(source="osm")
    for after_s, wait_s in waits:
        gate = gate.after(RateLimited(wait_s), now=NOW + after_s * SECOND)
    assert gate.closed_until == max(
        NOW + after_s * SECOND + timedelta(seconds=min(wait_s, 86_400.0))
        for after_s, wait_s in waits
    )


RUNS = st.builds(
    lambda number, day, hours, backfill, source: (
        new(f"r{number}", january(day), source=source, priority=RunPriority(backfill))
        if hours is None
        else retry(f"r{number}", january(day), NOW + timedelta(hours=hours))
    ),
    st.integers(0, 999),
    st.integers(1, 5),
    st.none() | st.integers(-3, 3),
    st.integers(0, 1),
    st.sampled_from(["osm", "bing"]),
)


@given(queue=st.lists(RUNS, max_size=12, unique_by=lambda run: run.run_id))
def test_the_next_run_is_the_first_of_those_that_may_start(queue: list[Run]) -> None:
    gates = [SourceGate(source="bing", closed_until=NOW + SECOND)]
    order = eligible(queue, NOW, gates)
    assert {run.run_id for run in order} == {
        run.run_id for run in queue if is_due(run, NOW) and run.source != "bing"
    }
    assert order == sorted(order, key=fair_order)


def test_a_run_that_has_lost_a_worker_goes_alone() -> None:
    def made(name: str, minute: int, rescues: int = 0) -> Run:
        lost = {"lease_epoch": 1, "error_class": "retryable", "error_message": "lost"}
        fields = {**lost, "status": RunStatus.ERROR, "next_retry_at": NOW} if rescues else {}
        return Run(
            run_id=RunId(name),
            kind=RunKind.DOWNLOAD_AREA,
            source="osm",
            submitted_date=NOW + timedelta(minutes=minute),
            rescues=rescues,
            **fields,  # type: ignore[arg-type]
        )

    plain = [made("a", 1), made("b", 2), made("d", 4)]
    lost = made("c", 3, rescues=1)
    assert batch_of([*plain[:2], lost, plain[2]], 9) == plain[:2]
    assert batch_of([lost, plain[2]], 9) == [lost]
    assert batch_of(plain, 2) == plain[:2]
    assert batch_of([], 2) == []
