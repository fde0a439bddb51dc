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
    get_queue_key,
    is_due,
    select_eligible,
    take_batch,
)

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)


def january_day(day: int) -> datetime:
    return datetime(2024, 1, day, tzinfo=UTC)


def make_new_run(
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


def make_retry_run(run_id: str, submitted: datetime, next_retry_at: datetime | None) -> Run:
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


def run_ids(runs: list[Run]) -> list[str]:
    return [run.run_id for run in runs]


def test_spec4_ordering_example() -> None:
    queue = [
        make_retry_run("not-ready-yet", january_day(4), january_day(6)),
        make_new_run("new-2", january_day(4)),
        make_new_run("new-1", january_day(3)),
        make_retry_run("oldest-retry-ready", january_day(1), january_day(5)),
    ]
    for now in (january_day(5), NOW):
        assert run_ids(select_eligible(queue, now)) == ["oldest-retry-ready", "new-1", "new-2"]
        assert select_eligible(queue, now)[0] == queue[-1]
    assert run_ids(select_eligible(queue, january_day(6))) == [
        "oldest-retry-ready",
        "new-1",
        "new-2",
        "not-ready-yet",
    ]


def test_spec4_older_retry_precedes_newer_run() -> None:
    old = make_retry_run("old", NOW - timedelta(days=3), NOW)
    fresh = make_new_run("fresh", NOW - timedelta(minutes=5))
    assert select_eligible([fresh, old], NOW) == [old, fresh]
    assert select_eligible([fresh, old], NOW - TICK) == [fresh]


def test_spec4_permanent_errors_and_processing_runs_are_not_eligible() -> None:
    held = Run(
        run_id=RunId("held"),
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=january_day(1),
        status=RunStatus.PROCESSING,
        lease_owner=WorkerId("w1"),
        lease_expires_at=january_day(2),
        lease_epoch=1,
    )
    assert select_eligible([make_retry_run("given-up", january_day(1), None), held], NOW) == []
    assert select_eligible([], NOW) == []


def test_backfill_never_starves_fresh_work() -> None:
    queue = [
        make_new_run("backfill-old", january_day(1), priority=RunPriority.BACKFILL),
        make_new_run("backfill-new", january_day(2), priority=RunPriority.BACKFILL),
        make_new_run("fresh-new", january_day(4)),
        make_new_run("fresh-old", january_day(3)),
    ]
    expected = ["fresh-old", "fresh-new", "backfill-old", "backfill-new"]
    assert run_ids(select_eligible(queue, NOW)) == expected


def test_run_id_breaks_ties() -> None:
    queue = [make_new_run("b", january_day(1)), make_new_run("a", january_day(1))]
    assert run_ids(select_eligible(queue, NOW)) == ["a", "b"]
    assert get_queue_key(queue[0]) == (RunPriority.FRESH, january_day(1), "b")


def test_spec4_phase5_filtering_by_allowed_kinds() -> None:
    queue = [make_new_run(kind.value, january_day(1), kind=kind) for kind in RunKind]
    assert run_ids(select_eligible(queue, NOW)) == [
        "acquire_partition",
        "download_area",
        "upload_flight",
    ]
    assert run_ids(select_eligible(queue, NOW, kinds={RunKind.UPLOAD_FLIGHT})) == ["upload_flight"]
    assert select_eligible(queue, NOW, kinds={RunKind.UPLOAD_FLIGHT}) == [queue[2]]
    assert select_eligible(queue, NOW, kinds=()) == []


def test_closed_source_gate_defers_runs_without_charge() -> None:
    queue = [
        make_new_run("slow", january_day(1), source="slow"),
        make_new_run("other", january_day(2), source="other"),
    ]
    gate = SourceGate(source="slow").close_after(RateLimited(30.0), now=NOW)
    assert gate == SourceGate(source="slow", closed_until=NOW + 30 * SECOND)
    assert run_ids(select_eligible(queue, NOW, [gate])) == ["other"]
    assert select_eligible(queue, NOW, [gate]) == [queue[1]]
    assert select_eligible(queue[:1], NOW, [gate]) == []
    # Waiting has changed nothing about the run: it is next again once the gate opens.
    assert select_eligible(queue, NOW + 30 * SECOND, [gate])[0] == queue[0]


def test_gate_opens_exactly_at_closed_until() -> None:
    gate = SourceGate(source="osm", closed_until=NOW)
    assert [gate.is_open(at) for at in (NOW - TICK, NOW, NOW + TICK)] == [False, True, True]
    assert SourceGate(source="osm").is_open(NOW)


def test_only_retry_after_hint_closes_gate() -> None:
    gate = SourceGate(source="osm", closed_until=NOW)
    for error in (Final(), Retryable(), RateLimited()):
        assert gate.close_after(error, now=NOW + SECOND) is gate


def test_gate_never_opens_earlier_than_announced() -> None:
    gate = SourceGate(source="osm").close_after(RateLimited(60.0), now=NOW)
    assert gate.close_after(RateLimited(59.0), now=NOW) is gate
    assert gate.close_after(RateLimited(60.0), now=NOW) is gate
    later = gate.close_after(RateLimited(60.0), now=NOW + SECOND)
    assert later == SourceGate(source="osm", closed_until=NOW + 61 * SECOND)


def test_gate_closure_is_capped_by_policy() -> None:
    gate = SourceGate(source="osm").close_after(RateLimited(1e9), now=NOW)
    assert RUN_POLICY.max_retry_after_s == 86_400.0
    assert gate.closed_until == NOW + 86_400 * SECOND


@pytest.mark.parametrize(
    ("name", "value"), [("source", "a/b"), ("closed_until", NOW.replace(tzinfo=None))]
)
def test_invalid_gate_is_rejected(name: str, value: Any) -> None:
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
def test_gate_is_closed_until_latest_wait(waits: list[tuple[int, float]]) -> None:
    gate = SourceGate(source="osm")
    for after_s, wait_s in waits:
        gate = gate.close_after(RateLimited(wait_s), now=NOW + after_s * SECOND)
    assert gate.closed_until == max(
        NOW + after_s * SECOND + timedelta(seconds=min(wait_s, 86_400.0))
        for after_s, wait_s in waits
    )


RUNS = st.builds(
    lambda number, day, hours, backfill, source: (
        make_new_run(f"r{number}", january_day(day), source=source, priority=RunPriority(backfill))
        if hours is None
        else make_retry_run(f"r{number}", january_day(day), NOW + timedelta(hours=hours))
    ),
    st.integers(0, 999),
    st.integers(1, 5),
    st.none() | st.integers(-3, 3),
    st.integers(0, 1),
    st.sampled_from(["osm", "bing"]),
)


@given(queue=st.lists(RUNS, max_size=12, unique_by=lambda run: run.run_id))
def test_eligible_runs_are_due_open_and_in_fair_order(queue: list[Run]) -> None:
    gates = [SourceGate(source="bing", closed_until=NOW + SECOND)]
    order = select_eligible(queue, NOW, gates)
    assert {run.run_id for run in order} == {
        run.run_id for run in queue if is_due(run, NOW) and run.source != "bing"
    }
    assert order == sorted(order, key=get_queue_key)


def test_rescued_run_is_batched_alone() -> None:
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
    assert take_batch([*plain[:2], lost, plain[2]], 9) == plain[:2]
    assert take_batch([lost, plain[2]], 9) == [lost]
    assert take_batch(plain, 2) == plain[:2]
    assert take_batch([], 2) == []
