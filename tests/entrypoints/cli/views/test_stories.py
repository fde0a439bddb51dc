"""Runs and partitions in words: each state tells why it is so, and what comes next."""

from datetime import timedelta

import pytest
from support.work_desk import LEASE, W1, W2, Desk, acquire, download, key, memory_desk
from support.work_operator import BROKEN, HOPELESS, WHY_REJECTED, busy, judged, partition_at

from tileferry.application.control.inspection import Inspection
from tileferry.application.control.partition_control import Override
from tileferry.application.control.work_policies import WorkPolicies
from tileferry.domain.actors import Actor
from tileferry.domain.partitions import TerminalityPolicy
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import Run, RunId, RunPriority, VerdictOutcome
from tileferry.entrypoints.cli.views.partition_story import why_partition
from tileferry.entrypoints.cli.views.run_story import why_run

ANN = Override(by="ann@laptop", reason="the link is back")
POOR = RetryBudget(capacity=1.0, earned_per_attempt=0.0, refill_per_s=0.001)


@pytest.fixture
def desk() -> Desk:
    return memory_desk()


def inspection(desk: Desk) -> Inspection:
    return Inspection(books=desk.reader, policies=desk.policies)


def run_story(desk: Desk, run: Run | RunId) -> str:
    looking = inspection(desk)
    found = looking.run(run.run_id if isinstance(run, Run) else run)
    return " ".join(why_run(found, looking.source(found.run.source), desk.policies))


def partition_story(desk: Desk, day: int = 1) -> str:
    found = inspection(desk).partition(key(day))
    assert found is not None
    return " ".join(why_partition(found, desk.policies))


def enqueued(desk: Desk, days: int = 1) -> None:
    works = [acquire(key(day)) for day in range(1, days + 1)]
    desk.partitions.enqueue(works, actor=Actor.OPERATOR)


# Runs


def test_a_backfill_waits_for_fresh_work(desk: Desk) -> None:
    run = desk.submitted(priority=RunPriority.BACKFILL)
    desk.submitted()
    assert "which lets all fresh work go first" in run_story(desk, run)
    desk.claimed()
    assert "1 run is ready and 1 under way." in run_story(desk, run)
    assert "Is a worker running" not in run_story(desk, run)


def test_a_retry_that_is_due_may_want_a_token() -> None:
    desk = memory_desk(budget=POOR)
    for flight in ("F1", "F2"):
        desk.submitted(download(flight))
    first, second = desk.queue.claim(W1, limit=2, lease=LEASE)
    for run in (first, second):
        desk.control.process_error(run, BROKEN)
    assert "It is tried again at" in run_story(desk, second)
    assert "token" not in run_story(desk, second)
    desk.pass_time(61)
    assert desk.claimed().run_id == first.run_id
    story = run_story(desk, second)
    assert "It has been due since" in story
    assert "Retries of osm are paid from tokens, and 0.0 are left" in story


def test_the_second_try_says_what_the_first_one_met(desk: Desk) -> None:
    run = desk.submitted()
    desk.control.process_error(desk.claimed(), BROKEN)
    desk.pass_time(61)
    desk.claimed(W2)
    story = run_story(desk, run)
    assert "Worker w2 has had it since" in story
    assert "This is another try. Before it: satellite-provider: connection reset" in story


def test_lost_workers_and_asked_for_patience_are_counted(desk: Desk) -> None:
    run = desk.submitted()
    desk.claimed()
    desk.pass_time(61)
    desk.control.sweep()
    assert "It has lost 1 worker." in run_story(desk, run)
    desk.control.process_error(desk.claimed(), busy(10))
    assert "costs no retry: 1 of 100 times that are allowed" in run_story(desk, run)


def test_a_run_that_was_cancelled_before_its_first_attempt(desk: Desk) -> None:
    run = desk.submitted()
    desk.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert "It was given up (final): cancelled: wrong area." in run_story(desk, run)
    desk.control.retry_now(run.run_id, reason="right after all", by="ann")
    assert "It is in error (final): cancelled: wrong area." in run_story(desk, run)


def test_a_partitions_run_that_was_given_up_points_at_the_partition(desk: Desk) -> None:
    enqueued(desk)
    desk.control.process_error(desk.claimed(), HOPELESS)
    story = run_story(desk, partition_at(desk, key(1)).last_run_id)
    assert "Its partition has failed with it." in story
    assert "runs retry" not in story


# Partitions


def test_nothing_is_known_of_what_is_not_there(desk: Desk) -> None:
    assert inspection(desk).partition(key(1)) is None
    assert inspection(desk).source("nobody").load.ready == 0


def test_a_new_partition_is_not_judged_yet(desk: Desk) -> None:
    enqueued(desk)
    assert partition_story(desk).startswith("The validator has not judged it yet. Run run-")


def test_spec3_s4_a_rejected_one_says_when_the_policy_tries_it_again(desk: Desk) -> None:
    enqueued(desk)
    run = judged(desk)
    story = partition_story(desk)
    assert f"judged it once, the last time run {run.run_id}, and rejected: {WHY_REJECTED}." in story
    assert "The policy has it tried again at" in story
    assert "by its rule of 300 s, times 6, at most 7200 s" in story


def test_spec3_s5_each_end_of_retries_has_its_words() -> None:
    policies = WorkPolicies(
        terminality=TerminalityPolicy(max_attempts=2, max_age=timedelta(days=2))
    )
    desk = memory_desk(policies=policies)
    enqueued(desk, 3)
    for _ in range(3):
        judged(desk)
    desk.partitions.retry([key(2)], ANN)
    judged(desk)
    desk.partitions.mark_terminal([key(3)], Override(by="ann", reason="hopeless"))
    assert "the policy allows it to be judged twice." in partition_story(desk, 2)
    assert "an operator has ruled out further tries: hopeless." in partition_story(desk, 3)
    desk.pass_time(timedelta(days=3).total_seconds())
    story = partition_story(desk, 1)
    assert "the policy ends after 48 h." in story
    assert "tileferry state retry osm/acme/city/2026-03-01 --reason" in story


def test_spec3_s8_one_without_raw_data_is_sent_to_the_backfill(desk: Desk) -> None:
    enqueued(desk)
    desk.control.process_error(desk.claimed(), HOPELESS)
    story = partition_story(desk)
    assert "ended before it could be judged: bbox: is none (got 1)." in story
    assert "The policy plans no further try" in story
    assert "--from 2026-03-01 --to 2026-03-01" in story


def test_spec3_s2_a_success_says_whose_data_is_read_whatever_came_later(desk: Desk) -> None:
    enqueued(desk)
    first = judged(desk, VerdictOutcome.NEEDS_REVIEW)
    accepted = f"judged it once, and accepted run {first.run_id}: consumers read its data."
    assert accepted in partition_story(desk)
    assert "A human should look at it" in partition_story(desk)
    desk.partitions.retry([key(1)], ANN)
    assert "An operator has it reprocessed by run" in partition_story(desk)
    second = judged(desk)
    story = partition_story(desk)
    assert f"judged it twice, and accepted run {first.run_id}" in story
    assert f"A later run, {second.run_id}, was to replace it and did not: {WHY_REJECTED}." in story
