"""Operators who want the same at once: one run comes of it, and nobody meets the database."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from attrs import evolve
from support.concurrency import CONTROL_PLANES, open_control_planes, run_concurrently
from support.control_plane import (
    FAILED,
    OVERRIDE,
    PASSED,
    ControlPlane,
    acquire_work,
    create_backfill_request,
    create_judged_partition,
    create_postgres_control_plane,
    create_sealed,
    create_verdict,
    download_work,
    get_partition,
    judge_partition,
    partition_key,
)
from support.control_plane_pair import Snapshot, check_snapshot

from tileferry.adapters.postgres import Database
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import RunFilter
from tileferry.domain.errors import (
    DatabaseError,
    IllegalTransitionError,
    PlanDriftedError,
    RateLimitedError,
    SatelliteProviderError,
    TileManagerError,
    WorkInProgressError,
)
from tileferry.domain.retry import RetryPolicy, build_quarantine_policy
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunStatus,
    VerdictOutcome,
    WorkerId,
    has_ended,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault
from tileferry.domain.work import AcquirePartition, parse_work

KEY = partition_key()
FLIGHTS = ("F1", "F2", "F3", "F4", "F5")


@pytest.fixture
def control_plane(database: Database) -> ControlPlane:
    return create_postgres_control_plane(database)


@pytest.fixture
def control_planes(database_url: str) -> Iterator[Sequence[ControlPlane]]:
    with open_control_planes(database_url) as desks:
        yield desks


def test_concurrent_submits_of_the_same_work_create_one_run(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    for flight in FLIGHTS:

        def act(one: ControlPlane, flight: str = flight) -> tuple[RunId, bool]:
            run, is_new = one.control.submit(download_work(flight), actor=Actor.OPERATOR)
            return run.run_id, is_new

        answers, refusals = run_concurrently(control_planes, act)
        assert refusals == {}
        assert len({run_id for run_id, _ in answers}) == 1
        assert Counter(new for _, new in answers) == {True: 1, False: CONTROL_PLANES - 1}
    assert control_plane.reader.count_runs() == {RunStatus.DISCOVERED: len(FLIGHTS)}


def test_concurrent_retry_and_submit_of_the_same_work_leave_one_run(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    for flight in FLIGHTS:
        run_id = control_plane.submit_run(download_work(flight)).run_id
        control_plane.control.cancel(run_id, reason="wrong", by="ann")

        def act(one: ControlPlane, run_id: RunId = run_id, flight: str = flight) -> RunId:
            if control_planes.index(one) % 2:
                return one.control.retry_now(run_id, reason="after all", by="bob").run_id
            return one.control.submit(download_work(flight), actor=Actor.OPERATOR)[0].run_id

        went_on, refusals = run_concurrently(control_planes, act)
        assert refusals.keys() <= {WorkInProgressError}
        unfinished, is_new = control_plane.control.submit(
            download_work(flight), actor=Actor.OPERATOR
        )
        assert (set(went_on), is_new) == ({unfinished.run_id}, False)


def test_retry_is_rejected_while_another_run_does_the_same_work(
    control_plane: ControlPlane,
) -> None:
    old = control_plane.submit_run(download_work("F1"))
    control_plane.control.cancel(old.run_id, reason="wrong", by="ann")
    new = control_plane.submit_run(download_work("F1"))
    with pytest.raises(WorkInProgressError, match=f"run {new.run_id} is doing the same work now"):
        control_plane.control.retry_now(old.run_id, reason="after all", by="ann")


def test_plan_applied_concurrently_takes_effect_once(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    create_judged_partition(control_plane, FAILED)
    create_judged_partition(control_plane, PASSED, wanted=partition_key(2))
    plan = control_plane.partitions.plan(create_backfill_request(1, 28, reprocess=True))
    override = evolve(OVERRIDE, confirmed=28)
    done, refusals = run_concurrently(
        control_planes, lambda one: len(one.partitions.apply(plan, override))
    )
    assert (sorted(done), refusals) == ([0] * (CONTROL_PLANES - 1) + [28], {})
    assert control_plane.reader.count_runs()[RunStatus.DISCOVERED] == 28


def test_only_one_of_several_plans_for_the_same_dates_is_applied(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    plans = {id(one): one.partitions.plan(create_backfill_request(1, 9)) for one in control_planes}
    assert len({plan.hash for plan in plans.values()}) == CONTROL_PLANES
    done, refusals = run_concurrently(
        control_planes, lambda one: len(one.partitions.apply(plans[id(one)], OVERRIDE))
    )
    assert (done, refusals) == ([9], {PlanDriftedError: CONTROL_PLANES - 1})
    assert control_plane.reader.count_runs() == {RunStatus.DISCOVERED: 9}


@pytest.mark.parametrize("outcome", [FAILED, PASSED])
def test_invariant_9_concurrent_retries_of_a_partition_create_one_run(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane], outcome: VerdictOutcome
) -> None:
    create_judged_partition(control_plane, outcome)
    tried, refusals = run_concurrently(
        control_planes, lambda one: one.partitions.retry([KEY], OVERRIDE)[0]
    )
    assert refusals == {IllegalTransitionError: CONTROL_PLANES - 1}
    assert tried == [get_partition(control_plane, KEY)]
    assert control_plane.reader.count_runs()[RunStatus.DISCOVERED] == 1
    judge_partition(control_plane, PASSED)
    assert get_partition(control_plane, KEY).attempt_count == 2


def test_concurrent_enqueues_create_each_partition_once(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    works = [acquire_work(KEY), acquire_work(partition_key(2, source="sat"))]
    done, refusals = run_concurrently(
        control_planes, lambda one: list(one.partitions.enqueue(works, actor=Actor.SCHEDULER))
    )
    assert refusals == {IllegalTransitionError: CONTROL_PLANES - 1}
    assert done == [[get_partition(control_plane, work.key) for work in works]]
    assert control_plane.reader.count_runs() == {RunStatus.DISCOVERED: 2}


# A crowd that does anything

QUICK = RetryPolicy(max_attempts=4, base_delay=0.02, max_delay=0.1, jitter_enabled=False)
POLICIES = WorkPolicies(run=QUICK, partition=QUICK, quarantine=build_quarantine_policy(2))
SHORT = timedelta(seconds=0.1)
STEPS = 40
ROUNDS_MAX = 200


def do_random_action(desk: ControlPlane, chance: random.Random) -> None:
    """Do something that an operator, a worker, a scheduler or a sweeper may do."""
    wanted = partition_key(chance.randint(1, 3))
    runs = desk.reader.list_runs(RunFilter(), limit=20)
    run_id = chance.choice(runs).run_id if runs else RunId("none")
    acts: list[Callable[[], object]] = [
        lambda: desk.control.submit(download_work(chance.choice(FLIGHTS)), actor=Actor.OPERATOR),
        lambda: desk.partitions.enqueue([acquire_work(wanted)], actor=Actor.SCHEDULER),
        lambda: desk.partitions.retry([wanted], OVERRIDE),
        lambda: desk.partitions.mark_terminal([wanted], OVERRIDE),
        lambda: desk.partitions.apply(
            desk.partitions.plan(create_backfill_request(1, 3, reprocess=True)), OVERRIDE
        ),
        lambda: desk.control.cancel(run_id, reason="wrong", by="ann"),
        lambda: desk.control.retry_now(run_id, reason="mended", by="ann"),
        desk.partitions.retry_due,
        desk.control.sweep,
    ]
    acts += [lambda: work_randomly(desk, chance)] * len(acts)
    chance.choice(acts)()


def work_randomly(desk: ControlPlane, chance: random.Random, *, honest: bool = False) -> int:
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
            desk.control.release_run(run)
    return len(claimed)


def finish(desk: ControlPlane, run: Run, outcome: VerdictOutcome) -> None:
    sealed = None
    if run.kind is RunKind.ACQUIRE_PARTITION:
        asked = parse_work(run.kind, run.payload)
        assert isinstance(asked, AcquirePartition)
        sealed = create_sealed(run, asked.key)
    desk.control.process_result(run, create_verdict(run, outcome), sealed=sealed)


def test_invariants_13_18_random_concurrent_actions_cause_no_database_error(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    def act(one: ControlPlane) -> int:
        chance = random.Random(control_planes.index(one))  # noqa: S311  # a repeatable crowd
        done = 0
        for _ in range(STEPS):
            try:
                do_random_action(one, chance)
                done += 1
            except DatabaseError:
                raise
            except TileManagerError:
                continue  # second, or not allowed: it was told so
        return done

    for one in (control_plane, *control_planes):
        one.policies = POLICIES
    done, refusals = run_concurrently(control_planes[:4], act)
    assert refusals == {}
    assert sum(done) > STEPS
    check_snapshot(Snapshot.from_control_plane(control_plane))
    for _ in range(ROUNDS_MAX):
        control_plane.control.sweep()
        if not work_randomly(control_plane, random.Random(0), honest=True):  # noqa: S311  # as above
            if all(map(has_ended, Snapshot.from_control_plane(control_plane).runs.values())):
                break
            time.sleep(0.02)
    books = Snapshot.from_control_plane(control_plane)
    assert [run for run in books.runs.values() if not has_ended(run)] == []
    check_snapshot(books)
