"""Operators who want the same at once: one run comes of it, and nobody meets the database."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from attrs import evolve
from support.books_pair import Snapshot, check_books
from support.crowd import CROWD, at_once, crowd_at
from support.partition_desk import ANN, FAILED, PASSED, dates, judged, known, made, verdict_on
from support.work_desk import Desk, acquire, download, key, postgres_desk, sealed_by

from tileferry.adapters.postgres import Database
from tileferry.application.control.work_policies import WorkPolicies
from tileferry.application.ports.work import RunFilter
from tileferry.domain.actors import Actor
from tileferry.domain.errors import (
    DatabaseError,
    IllegalTransitionError,
    InvalidValueError,
    PlanDriftedError,
    RateLimitedError,
    SatelliteProviderError,
    TileManagerError,
)
from tileferry.domain.retry import RetryPolicy
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunStatus,
    VerdictOutcome,
    WorkerId,
    has_ended,
)
from tileferry.domain.tiles.provider_faults import ProviderFault
from tileferry.domain.work import AcquirePartition, work_from

KEY = key()
FLIGHTS = ("F1", "F2", "F3", "F4", "F5")


@pytest.fixture
def desk(database: Database) -> Desk:
    return postgres_desk(database)


@pytest.fixture
def crowd(database_url: str) -> Iterator[Sequence[Desk]]:
    with crowd_at(database_url) as desks:
        yield desks


def test_the_same_work_submitted_by_many_at_once_is_one_run(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    for flight in FLIGHTS:

        def act(one: Desk, flight: str = flight) -> tuple[RunId, bool]:
            run, is_new = one.control.submit(download(flight), actor=Actor.OPERATOR)
            return run.run_id, is_new

        answers, refusals = at_once(crowd, act)
        assert refusals == {}
        assert len({run_id for run_id, _ in answers}) == 1
        assert Counter(new for _, new in answers) == {True: 1, False: CROWD - 1}
    assert desk.reader.counts() == {RunStatus.DISCOVERED: len(FLIGHTS)}


def test_of_a_run_that_is_woken_and_the_same_work_that_is_submitted_one_goes_on(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    for flight in FLIGHTS:
        run_id = desk.submitted(download(flight)).run_id
        desk.control.cancel(run_id, reason="wrong", by="ann")

        def act(one: Desk, run_id: RunId = run_id, flight: str = flight) -> RunId:
            if crowd.index(one) % 2:
                return one.control.retry_now(run_id, reason="after all", by="bob").run_id
            return one.control.submit(download(flight), actor=Actor.OPERATOR)[0].run_id

        went_on, refusals = at_once(crowd, act)
        assert refusals.keys() <= {InvalidValueError}
        unfinished, is_new = desk.control.submit(download(flight), actor=Actor.OPERATOR)
        assert (set(went_on), is_new) == ({unfinished.run_id}, False)


def test_a_run_is_not_woken_while_another_does_its_work(desk: Desk) -> None:
    old = desk.submitted(download("F1"))
    desk.control.cancel(old.run_id, reason="wrong", by="ann")
    new = desk.submitted(download("F1"))
    with pytest.raises(InvalidValueError, match=f"run {new.run_id} does the same work by now"):
        desk.control.retry_now(old.run_id, reason="after all", by="ann")


def test_a_plan_applied_by_many_at_once_is_carried_out_once(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    made(desk, FAILED)
    made(desk, PASSED, wanted=key(2))
    plan = desk.partitions.plan(dates(1, 28, reprocess=True))
    override = evolve(ANN, confirmed=28)
    done, refusals = at_once(crowd, lambda one: len(one.partitions.apply(plan, override)))
    assert (sorted(done), refusals) == ([0] * (CROWD - 1) + [28], {})
    assert desk.reader.counts()[RunStatus.DISCOVERED] == 28


def test_of_different_plans_for_the_same_dates_one_is_carried_out(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    plans = {id(one): one.partitions.plan(dates(1, 9)) for one in crowd}
    assert len({plan.hash for plan in plans.values()}) == CROWD
    done, refusals = at_once(crowd, lambda one: len(one.partitions.apply(plans[id(one)], ANN)))
    assert (done, refusals) == ([9], {PlanDriftedError: CROWD - 1})
    assert desk.reader.counts() == {RunStatus.DISCOVERED: 9}


@pytest.mark.parametrize("outcome", [FAILED, PASSED])
def test_invariant_9_a_partition_retried_by_many_at_once_gets_one_run(
    desk: Desk, crowd: Sequence[Desk], outcome: VerdictOutcome
) -> None:
    made(desk, outcome)
    tried, refusals = at_once(crowd, lambda one: one.partitions.retry([KEY], ANN)[0])
    assert refusals == {IllegalTransitionError: CROWD - 1}
    assert tried == [known(desk, KEY)]
    assert desk.reader.counts()[RunStatus.DISCOVERED] == 1
    judged(desk, PASSED)
    assert known(desk, KEY).attempt_count == 2


def test_partitions_enqueued_by_many_at_once_come_into_being_once(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    works = [acquire(KEY), acquire(key(2, source="sat"))]
    done, refusals = at_once(
        crowd, lambda one: list(one.partitions.enqueue(works, actor=Actor.SCHEDULER))
    )
    assert refusals == {IllegalTransitionError: CROWD - 1}
    assert done == [[known(desk, work.key) for work in works]]
    assert desk.reader.counts() == {RunStatus.DISCOVERED: 2}


# A crowd that does anything

QUICK = RetryPolicy(max_attempts=4, base_delay=0.02, max_delay=0.1, jitter_enabled=False)
POLICIES = WorkPolicies(run=QUICK, partition=QUICK, max_rescues=2)
SHORT = timedelta(seconds=0.1)
STEPS = 40
ROUNDS_MAX = 200


def anything(desk: Desk, chance: random.Random) -> None:
    """Do something that an operator, a worker, a scheduler or a sweeper may do."""
    wanted = key(chance.randint(1, 3))
    runs = desk.reader.runs(RunFilter(), limit=20)
    run_id = chance.choice(runs).run_id if runs else RunId("none")
    acts: list[Callable[[], object]] = [
        lambda: desk.control.submit(download(chance.choice(FLIGHTS)), actor=Actor.OPERATOR),
        lambda: desk.partitions.enqueue([acquire(wanted)], actor=Actor.SCHEDULER),
        lambda: desk.partitions.retry([wanted], ANN),
        lambda: desk.partitions.mark_terminal([wanted], ANN),
        lambda: desk.partitions.apply(desk.partitions.plan(dates(1, 3, reprocess=True)), ANN),
        lambda: desk.control.cancel(run_id, reason="wrong", by="ann"),
        lambda: desk.control.retry_now(run_id, reason="mended", by="ann"),
        desk.partitions.retry_due,
        desk.control.sweep,
    ]
    acts += [lambda: work(desk, chance)] * len(acts)
    chance.choice(acts)()


def work(desk: Desk, chance: random.Random, *, honest: bool = False) -> int:
    """Claim a few runs, and have them end in any way, or in none."""
    claimed = desk.queue.claim(WorkerId(desk.new_run_id()), limit=2, lease=SHORT)
    for run in claimed:
        fate = 0.0 if honest else chance.random()
        if fate < 0.5:
            finish(desk, run, PASSED if honest else chance.choice(list(VerdictOutcome)))
        elif fate < 0.7:
            reset = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)
            desk.control.process_error(run, reset)
        elif fate < 0.8:
            busy = RateLimitedError(url="u", attempts=1, retry_after_s=0.05)
            desk.control.process_error(run, busy)
        elif fate < 0.9:
            desk.control.give_back(run)
    return len(claimed)


def finish(desk: Desk, run: Run, outcome: VerdictOutcome) -> None:
    sealed = None
    if run.kind is RunKind.ACQUIRE_PARTITION:
        asked = work_from(run.kind, run.payload)
        assert isinstance(asked, AcquirePartition)
        sealed = sealed_by(run, asked.key)
    desk.control.process_result(run, verdict_on(run, outcome), sealed=sealed)


def test_invariants_13_18_a_crowd_that_does_anything_meets_no_error_of_the_database(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    def act(one: Desk) -> int:
        chance = random.Random(crowd.index(one))  # noqa: S311  # a repeatable crowd
        done = 0
        for _ in range(STEPS):
            try:
                anything(one, chance)
                done += 1
            except DatabaseError:
                raise
            except TileManagerError:
                continue  # second, or not allowed: it was told so
        return done

    for one in (desk, *crowd):
        one.policies = POLICIES
    done, refusals = at_once(crowd[:4], act)
    assert refusals == {}
    assert sum(done) > STEPS
    check_books(Snapshot.of(desk))
    for _ in range(ROUNDS_MAX):
        desk.control.sweep()
        if not work(desk, random.Random(0), honest=True):  # noqa: S311  # as above
            if all(map(has_ended, Snapshot.of(desk).runs.values())):
                break
            time.sleep(0.02)
    books = Snapshot.of(desk)
    assert [run for run in books.runs.values() if not has_ended(run)] == []
    check_books(books)
