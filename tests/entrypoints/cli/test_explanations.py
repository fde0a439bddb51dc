"""Runs and partitions in words: each state tells why it is so, and what comes next."""

from datetime import timedelta

import pytest
from support.control_plane import (
    LEASE,
    W1,
    W2,
    ControlPlane,
    RecordedRuns,
    acquire_work,
    create_memory_control_plane,
    download_work,
    partition_key,
)
from support.work_operator import (
    FINAL_ERROR,
    REJECTION_REASON,
    UNREACHABLE_ERROR,
    get_partition,
    judge_next_run,
    rate_limited_error,
)

from tileferry.application.control.partition_control import OperatorOverride
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.queries import WorkInspector
from tileferry.domain.partitions import TerminalityPolicy
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import Run, RunId, RunPriority, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.entrypoints.cli import explanations

ANN = OperatorOverride(by="ann@laptop", reason="the link is back")
POOR = RetryBudget(capacity=1.0, earned_per_success=0.0, refill_per_s=0.001)


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


def inspection(desk: ControlPlane) -> WorkInspector:
    return WorkInspector(
        books=desk.reader, raw=lambda: RecordedRuns(desk.reader), policies=desk.policies
    )


def explain_run(desk: ControlPlane, run: Run | RunId) -> str:
    looking = inspection(desk)
    found = looking.run(run.run_id if isinstance(run, Run) else run)
    return " ".join(
        explanations.explain_run(found, looking.get_source(found.run.source), desk.policies)
    )


def explain_partition(desk: ControlPlane, day: int = 1) -> str:
    found = inspection(desk).find_partition(partition_key(day))
    assert found is not None
    return " ".join(explanations.explain_partition(found, desk.policies))


def enqueue_partitions(desk: ControlPlane, days: int = 1) -> None:
    works = [acquire_work(partition_key(day)) for day in range(1, days + 1)]
    desk.partitions.enqueue(works, actor=Actor.OPERATOR)


# Runs


def test_backfill_run_explains_wait_for_fresh_runs(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run(priority=RunPriority.BACKFILL)
    control_plane.submit_run()
    assert "which has the lowest priority" in explain_run(control_plane, run)
    control_plane.claim_run()
    assert "1 run is ready and 1 in progress." in explain_run(control_plane, run)
    assert "Is a worker running" not in explain_run(control_plane, run)


def test_due_retry_explains_missing_tokens() -> None:
    desk = create_memory_control_plane(budget=POOR)
    for flight in ("F1", "F2"):
        desk.submit_run(download_work(flight))
    first, second = desk.queue.claim(W1, limit=2, lease=LEASE)
    for run in (first, second):
        desk.control.process_error(run, UNREACHABLE_ERROR)
    assert "The next retry is at" in explain_run(desk, second)
    assert "token" not in explain_run(desk, second)
    desk.pass_time(61)
    assert desk.claim_run().run_id == first.run_id
    story = explain_run(desk, second)
    assert "It has been due since" in story
    assert "Each retry of osm takes a token; 0.0 are left" in story


def test_second_attempt_shows_previous_error(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), UNREACHABLE_ERROR)
    control_plane.pass_time(61)
    control_plane.claim_run(W2)
    story = explain_run(control_plane, run)
    assert "Worker w2 has been processing it since" in story
    assert "This is a retry. The previous error: provider: connection reset" in story


def test_lost_workers_and_rate_limits_are_counted(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.claim_run()
    control_plane.pass_time(61)
    control_plane.control.sweep()
    assert "It has lost 1 worker." in explain_run(control_plane, run)
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(10))
    assert "rate limited once (limit: 100)" in explain_run(control_plane, run)


def test_cancelled_run_shows_reason(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert "It was given up (final): cancelled: wrong area." in explain_run(control_plane, run)
    control_plane.control.retry_now(run.run_id, reason="right after all", by="ann")
    assert "It is in error (final): cancelled: wrong area." in explain_run(control_plane, run)


def test_given_up_partition_run_refers_to_partition(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    story = explain_run(control_plane, get_partition(control_plane, partition_key(1)).last_run_id)
    assert "Its partition has failed with it." in story
    assert "runs retry" not in story


# Partitions


def test_unknown_partition_or_source_is_empty(control_plane: ControlPlane) -> None:
    assert inspection(control_plane).find_partition(partition_key(1)) is None
    assert inspection(control_plane).get_source("nobody").load.ready == 0


def test_new_partition_has_no_verdict(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    assert explain_partition(control_plane).startswith("It has not been validated yet. Run run-")


def test_failed_partition_shows_next_retry(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    run = judge_next_run(control_plane)
    story = explain_partition(control_plane)
    assert (
        f"validated once; run {run.run_id}, the last one, was rejected: {REJECTION_REASON}."
        in story
    )
    assert "A worker retries it at" in story
    assert "backoff: 300 s, times 6, at most 7200 s" in story


def test_each_terminal_reason_is_explained() -> None:
    policies = WorkPolicies(
        terminality=TerminalityPolicy(max_attempts=2, max_age=timedelta(days=2))
    )
    desk = create_memory_control_plane(policies=policies)
    enqueue_partitions(desk, 3)
    for _ in range(3):
        judge_next_run(desk)
    desk.partitions.retry([partition_key(2)], ANN)
    judge_next_run(desk)
    desk.partitions.mark_terminal([partition_key(3)], OperatorOverride(by="ann", reason="hopeless"))
    assert "all 2 attempts are used up." in explain_partition(desk, 2)
    assert "an operator marked it: hopeless." in explain_partition(desk, 3)
    desk.pass_time(timedelta(days=3).total_seconds())
    story = explain_partition(desk, 1)
    assert "the policy stops retrying after 48 h." in story
    assert "tileferry state retry osm/acme/city/2026-03-01 --reason" in story


def test_partition_without_raw_data_refers_to_backfill(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane)
    control_plane.control.process_error(control_plane.claim_run(), FINAL_ERROR)
    story = explain_partition(control_plane)
    assert "ended before it could be validated: bbox: is none (got 1)." in story
    assert "The policy plans no retry" in story
    assert "--from 2026-03-01 --to 2026-03-01" in story


def test_success_names_readable_run_after_later_failure(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane)
    first = judge_next_run(control_plane, VerdictOutcome.NEEDS_REVIEW)
    accepted = f"validated once; run {first.run_id} was accepted, and consumers read its data."
    assert accepted in explain_partition(control_plane)
    assert "It needs review" in explain_partition(control_plane)
    control_plane.partitions.retry([partition_key(1)], ANN)
    assert "is reprocessing it" in explain_partition(control_plane)
    second = judge_next_run(control_plane)
    story = explain_partition(control_plane)
    assert f"validated twice; run {first.run_id}" in story
    assert (
        f"A later run, {second.run_id}, was meant to replace it but failed: {REJECTION_REASON}."
        in story
    )
