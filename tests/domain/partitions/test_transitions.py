"""What each transition does to a partition, field by field; spec 3, sentence by sentence."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.partitions import (
    Partition,
    PartitionKey,
    PartitionStatus,
    TerminalityPolicy,
    abandon,
    accept,
    enqueue,
    find_terminal_reason,
    get_readable_run,
    mark_terminal,
    reject,
    reprocess,
    requeue,
)
from tileferry.domain.partitions.retry_rules import (
    decide_automatic_retry,
    sum_automatic_waits,
)
from tileferry.domain.retry import PARTITION_POLICY
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import Actor, Change

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
CREATED = NOW - timedelta(days=1)
TICK = timedelta(microseconds=1)
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)
R1, R2, R3 = RunId("r1"), RunId("r2"), RunId("r3")
PATIENT = TerminalityPolicy(max_attempts=9)


def make_pending(**fields: Any) -> Partition:
    base = {"attempt_count": 2, "error_message": "older", "active_run_id": R2, "last_run_id": R2}
    times = {"created_at": CREATED, "updated_at": CREATED}
    return Partition(key=KEY, status=PartitionStatus.PENDING, **{**base, **times, **fields})


def make_failed(**fields: Any) -> Partition:
    base = {"attempt_count": 3, "error_message": "bad", "last_run_id": R2}
    times = {"created_at": CREATED, "updated_at": CREATED}
    return Partition(key=KEY, status=PartitionStatus.FAILED, **{**base, **times, **fields})


def make_success(**fields: Any) -> Partition:
    base = {"attempt_count": 3, "current_run_id": R1, "last_run_id": R1}
    times = {"created_at": CREATED, "updated_at": CREATED}
    return Partition(key=KEY, status=PartitionStatus.SUCCESS, **{**base, **times, **fields})


def make_reprocessing(**fields: Any) -> Partition:
    return make_success(**{"active_run_id": R2, "last_run_id": R2, **fields})


def requeue_by_operator(partition: Partition, run_id: RunId = R3) -> Change[Partition]:
    return requeue(
        partition, run_id, actor=Actor.OPERATOR, now=NOW, terminality=PATIENT, reason="fixed"
    )


def test_enqueue_creates_pending_partition() -> None:
    assert enqueue(KEY, R1, actor=Actor.SCHEDULER, now=NOW) == Change(
        transition="enqueue",
        actor=Actor.SCHEDULER,
        before=None,
        after=Partition(
            key=KEY,
            status=PartitionStatus.PENDING,
            attempt_count=0,
            current_run_id=None,
            active_run_id=R1,
            last_run_id=R1,
            abandoned=False,
            needs_review=False,
            terminal_marker=None,
            error_message=None,
            created_at=NOW,
            updated_at=NOW,
        ),
        reason=None,
        at=NOW,
    )


def test_pending_to_success_moves_current_run_id() -> None:
    assert accept(make_pending(), R2, actor=Actor.VALIDATOR, now=NOW) == Change(
        transition="accept",
        actor=Actor.VALIDATOR,
        before=make_pending(),
        after=make_success(current_run_id=R2, last_run_id=R2, updated_at=NOW),
        reason=None,
        at=NOW,
        waited_s=sum_automatic_waits(make_pending(), PARTITION_POLICY),
    )


def test_success_needing_review_is_readable_and_flagged() -> None:
    change = accept(make_pending(), R2, actor=Actor.VALIDATOR, now=NOW, review_reason="2 stale")
    assert change.after == make_success(
        current_run_id=R2, last_run_id=R2, needs_review=True, updated_at=NOW
    )
    assert change.reason == "2 stale"
    assert get_readable_run(change.after) == R2


@pytest.mark.parametrize("current", [None, R1])
def test_pending_to_failed_leaves_current_run_id(current: RunId | None) -> None:
    before = make_pending(current_run_id=current)
    assert reject(before, R2, actor=Actor.VALIDATOR, now=NOW, error="bad") == Change(
        transition="reject",
        actor=Actor.VALIDATOR,
        before=before,
        after=make_failed(current_run_id=current, updated_at=NOW),
        reason="bad",
        at=NOW,
        record=decide_automatic_retry(
            make_failed(current_run_id=current, updated_at=NOW), PARTITION_POLICY
        ),
    )


def test_operator_requeues_failed_partition_with_reason() -> None:
    before = make_failed(terminal_marker="hopeless", attempt_count=9)
    change = requeue_by_operator(before)
    assert change == Change(
        transition="requeue",
        actor=Actor.OPERATOR,
        before=before,
        after=make_pending(
            attempt_count=9,
            error_message="bad",
            active_run_id=R3,
            last_run_id=R3,
            updated_at=NOW,
        ),
        reason="fixed",
        at=NOW,
    )


def test_scheduler_requeues_failed_partition() -> None:
    change = requeue(make_failed(), R3, actor=Actor.SCHEDULER, now=NOW, terminality=PATIENT)
    assert change.after.status is PartitionStatus.PENDING
    assert change.actor is Actor.SCHEDULER
    assert change.reason is None


@pytest.mark.parametrize(
    "actor", [Actor.EXTRACTOR, Actor.VALIDATOR, Actor.CONSUMER, Actor.WORKER, Actor.SWEEPER]
)
def test_data_plane_may_not_requeue_failed_partition(actor: Actor) -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        requeue(make_failed(), R3, actor=actor, now=NOW, terminality=PATIENT, reason="please")
    assert str(caught.value) == (
        f"partition osm/acme/roads/2024-01-01 is failed: {actor} may not requeue it: "
        "only operator, scheduler may"
    )


def test_second_failure_is_counted_and_stays_failed() -> None:
    again = reject(
        requeue_by_operator(make_failed()).after, R3, actor=Actor.VALIDATOR, now=NOW, error="x"
    )
    assert again.after == make_failed(
        attempt_count=4, error_message="x", last_run_id=R3, updated_at=NOW
    )


def test_late_failed_verdict_on_abandoned_run_is_counted() -> None:
    before = make_failed(abandoned=True)
    change = reject(before, R2, actor=Actor.VALIDATOR, now=NOW, error="torn")
    assert change.before == before
    assert change.after == make_failed(attempt_count=4, error_message="torn", updated_at=NOW)
    with pytest.raises(IllegalTransitionError, match="no run is active"):
        reject(change.after, R2, actor=Actor.VALIDATOR, now=NOW, error="torn")
    with pytest.raises(IllegalTransitionError, match="it would have to be pending, success"):
        accept(before, R2, actor=Actor.VALIDATOR, now=NOW)


def test_reprocessing_keeps_success_readable() -> None:
    before = make_success(needs_review=True, abandoned=True)
    change = reprocess(before, R2, actor=Actor.OPERATOR, now=NOW, reason="new sensor")
    assert change == Change(
        transition="reprocess",
        actor=Actor.OPERATOR,
        before=before,
        after=make_reprocessing(needs_review=True, updated_at=NOW),
        reason="new sensor",
        at=NOW,
    )
    assert get_readable_run(change.after) == R1


def test_successful_reprocessing_replaces_current_run_id() -> None:
    before = make_reprocessing(needs_review=True, error_message="older")
    assert accept(before, R2, actor=Actor.VALIDATOR, now=NOW).after == make_success(
        attempt_count=4, current_run_id=R2, last_run_id=R2, updated_at=NOW
    )


def test_failed_reprocessing_keeps_prior_success() -> None:
    before = make_reprocessing(needs_review=True)
    after = reject(before, R2, actor=Actor.VALIDATOR, now=NOW, error="bad").after
    assert after == make_success(
        attempt_count=4, last_run_id=R2, needs_review=True, error_message="bad", updated_at=NOW
    )
    assert get_readable_run(after) == R1


def test_second_concurrent_reprocessing_is_rejected() -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        reprocess(make_reprocessing(), R3, actor=Actor.OPERATOR, now=NOW, reason="why")
    assert caught.value.problem == "run r2 is already in progress"


def test_abandoned_run_fails_partition_without_counting_attempt() -> None:
    assert abandon(make_pending(), R2, actor=Actor.WORKER, now=NOW, error="no route") == Change(
        transition="abandon",
        actor=Actor.WORKER,
        before=make_pending(),
        after=make_failed(
            attempt_count=2, error_message="no route", abandoned=True, updated_at=NOW
        ),
        reason="no route",
        at=NOW,
    )


def test_abandoned_first_run_leaves_attempt_count_zero() -> None:
    before = enqueue(KEY, R1, actor=Actor.OPERATOR, now=CREATED).after
    after = abandon(before, R1, actor=Actor.SCHEDULER, now=NOW, error="no route").after
    assert after == make_failed(
        attempt_count=0, error_message="no route", last_run_id=R1, abandoned=True, updated_at=NOW
    )


def test_abandoned_reprocessing_keeps_success() -> None:
    before = make_reprocessing(needs_review=True)
    after = abandon(before, R2, actor=Actor.SCHEDULER, now=NOW, error="no route").after
    assert after == make_success(
        last_run_id=R2,
        needs_review=True,
        abandoned=True,
        error_message="no route",
        updated_at=NOW,
    )


def test_requeue_of_abandoned_partition_starts_new_run() -> None:
    assert requeue_by_operator(make_failed(abandoned=True, attempt_count=0)).after == make_pending(
        attempt_count=0, error_message="bad", active_run_id=R3, last_run_id=R3, updated_at=NOW
    )


def test_terminal_is_marker_on_failed_status() -> None:
    change = mark_terminal(make_failed(), actor=Actor.OPERATOR, now=NOW, reason="hopeless")
    assert change == Change(
        transition="mark_terminal",
        actor=Actor.OPERATOR,
        before=make_failed(),
        after=make_failed(terminal_marker="hopeless", updated_at=NOW),
        reason="hopeless",
        at=NOW,
    )
    again = mark_terminal(change.after, actor=Actor.OPERATOR, now=NOW, reason="still")
    assert again.after.terminal_marker == "still"


@pytest.mark.parametrize("reason", [None, "", " "])
def test_operator_override_requires_reason(reason: Any) -> None:
    overrides: list[Callable[[], object]] = [
        lambda: requeue(
            make_failed(), R3, actor=Actor.OPERATOR, now=NOW, terminality=PATIENT, reason=reason
        ),
        lambda: reprocess(make_success(), R3, actor=Actor.OPERATOR, now=NOW, reason=reason),
        lambda: mark_terminal(make_failed(), actor=Actor.OPERATOR, now=NOW, reason=reason),
    ]
    for override in overrides:
        with pytest.raises(IllegalTransitionError, match="an override needs a reason"):
            override()


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        (make_failed(terminal_marker="hopeless"), "marked"),
        (make_failed(attempt_count=9), "attempts_used_up"),
        (make_failed(created_at=NOW - timedelta(days=30)), "too_old"),
    ],
)
def test_scheduler_may_not_requeue_terminal_partition(partition: Partition, reason: str) -> None:
    terminality = TerminalityPolicy(max_attempts=9, max_age=timedelta(days=30))
    assert find_terminal_reason(partition, terminality, NOW) == reason
    with pytest.raises(IllegalTransitionError) as caught:
        requeue(partition, R3, actor=Actor.SCHEDULER, now=NOW, terminality=terminality)
    assert str(caught.value) == (
        "partition osm/acme/roads/2024-01-01 is failed: scheduler may not requeue it: "
        f"it is terminal ({reason}); an operator can requeue it"
    )
    by_hand = requeue(
        partition, R3, actor=Actor.OPERATOR, now=NOW, terminality=terminality, reason="I know"
    )
    assert by_hand.after.status is PartitionStatus.PENDING


def test_scheduler_may_not_requeue_abandoned_partition() -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        requeue(
            make_failed(abandoned=True), R3, actor=Actor.SCHEDULER, now=NOW, terminality=PATIENT
        )
    assert caught.value.problem == (
        "the policy does not allow an automatic retry; an operator can requeue it"
    )


def test_backoff_binds_scheduler_but_not_operator() -> None:
    policy = evolve(PARTITION_POLICY, jitter_enabled=False)
    rejected = make_failed(attempt_count=1, updated_at=NOW)
    due = NOW + timedelta(minutes=5)

    def automatic(now: datetime) -> Change[Partition]:
        return requeue(
            rejected, R3, actor=Actor.SCHEDULER, now=now, terminality=PATIENT, policy=policy
        )

    with pytest.raises(IllegalTransitionError) as caught:
        automatic(due - TICK)
    assert caught.value.problem == (
        "the automatic retry is not due until 2024-01-05 12:05:00+00:00"
    )
    assert automatic(due).after.updated_at == due
    assert requeue_by_operator(rejected).after.active_run_id == R3


@pytest.mark.parametrize("run_id", [R1, R2])
def test_reused_run_id_is_rejected(run_id: RunId) -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        requeue_by_operator(make_failed(current_run_id=R1), run_id)
    assert caught.value.transition == "requeue"
    assert caught.value.problem == f"run {run_id} was already used; a new run is required"
    with pytest.raises(IllegalTransitionError) as caught:
        reprocess(make_success(last_run_id=R2), run_id, actor=Actor.OPERATOR, now=NOW, reason="why")
    assert caught.value.transition == "reprocess"
    assert caught.value.problem == f"run {run_id} was already used; a new run is required"


STALE: dict[str, Callable[[Partition], object]] = {
    "accept": lambda it: accept(it, R1, actor=Actor.VALIDATOR, now=NOW),
    "reject": lambda it: reject(it, R1, actor=Actor.VALIDATOR, now=NOW, error="bad"),
    "abandon": lambda it: abandon(it, R1, actor=Actor.WORKER, now=NOW, error="bad"),
}


@pytest.mark.parametrize("name", STALE)
def test_transition_by_inactive_run_is_rejected(name: str) -> None:
    cases = {
        "run r2 is active": [make_pending(), make_reprocessing()],
        "no run is active": [make_success(), make_success(current_run_id=R3, last_run_id=R3)],
    }
    for state, partitions in cases.items():
        for partition in partitions:
            with pytest.raises(IllegalTransitionError) as caught:
                STALE[name](partition)
            assert caught.value.transition == name
            assert caught.value.problem == f"{state}, not run r1"


@pytest.mark.parametrize("partition", [make_failed(), make_failed(abandoned=True)])
def test_failed_partition_rejects_verdict_on_other_run(partition: Partition) -> None:
    for run_id in (R1, R3) if partition.abandoned else (R1, R2, R3):
        with pytest.raises(IllegalTransitionError, match="no run is active, not run"):
            reject(partition, run_id, actor=Actor.VALIDATOR, now=NOW, error="bad")


def test_updated_at_never_goes_backwards() -> None:
    ahead = NOW + timedelta(hours=1)
    change = accept(make_pending(updated_at=ahead), R2, actor=Actor.VALIDATOR, now=NOW)
    assert change.after.updated_at == ahead
    assert change.at == NOW


@pytest.mark.parametrize("actor", [Actor.EXTRACTOR, Actor.VALIDATOR, Actor.CONSUMER])
def test_data_plane_and_consumers_may_not_start_runs(actor: Actor) -> None:
    starts: list[Callable[[], object]] = [
        lambda: enqueue(KEY, R1, actor=actor, now=NOW),
        lambda: requeue(make_failed(), R3, actor=actor, now=NOW, terminality=PATIENT, reason="why"),
        lambda: reprocess(make_success(), R3, actor=actor, now=NOW, reason="why"),
    ]
    for start in starts:
        with pytest.raises(IllegalTransitionError, match="only operator"):
            start()


def test_attempt_count_never_resets() -> None:
    partition, counts = enqueue(KEY, R1, actor=Actor.OPERATOR, now=NOW).after, []
    for number in range(2, 5):
        active = partition.last_run_id
        partition = reject(partition, active, actor=Actor.VALIDATOR, now=NOW, error="bad").after
        counts.append(partition.attempt_count)
        partition = requeue_by_operator(partition, RunId(f"r{number}")).after
        counts.append(partition.attempt_count)
    partition = accept(partition, RunId("r4"), actor=Actor.VALIDATOR, now=NOW).after
    assert [*counts, partition.attempt_count] == [1, 1, 2, 2, 3, 3, 4]


def test_partition_with_active_run_is_not_requeued() -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        requeue_by_operator(make_pending())
    assert caught.value.problem == "it would have to be failed"


def test_transition_does_not_mutate_prior_state() -> None:
    before = make_pending()
    reject(before, R2, actor=Actor.VALIDATOR, now=NOW, error="bad")
    assert before == make_pending()
