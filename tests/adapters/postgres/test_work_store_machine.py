"""Random operators, workers, faults and clocks, at the books in Postgres and in memory at once."""

import logging
import os
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.control_plane import (
    LEASE,
    OVERRIDE,
    ControlPlane,
    acquire_work,
    create_backfill_request,
    create_sealed,
    create_verdict,
    download_work,
    partition_key,
)
from support.control_plane_pair import (
    ControlPlanePair,
    check_snapshot,
    check_step,
    create_pair,
    open_with_manual_clock,
)

from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import ALL_KINDS
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    LeaseLostError,
    RateLimitedError,
    SatelliteProviderError,
    TileManagerError,
)
from tileferry.domain.partitions import (
    BackfillPlan,
    PartitionKey,
    TerminalityPolicy,
)
from tileferry.domain.retry import RetryBudget, RetryPolicy, build_quarantine_policy
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    VerdictOutcome,
    WorkerId,
    has_ended,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
POLICIES = WorkPolicies(
    run=RetryPolicy(
        max_attempts=3,
        base_delay=30.0,
        max_delay=120.0,
        jitter_enabled=False,
        max_rate_limited=2,
        max_retry_after_s=600.0,
    ),
    terminality=TerminalityPolicy(max_attempts=3, max_age=timedelta(hours=6)),
    quarantine=build_quarantine_policy(1),
)
BUDGET = RetryBudget(capacity=2.0, earned_per_success=0.5, refill_per_s=0.01)
ERRORS: Sequence[TileManagerError] = (
    SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE),
    RateLimitedError(url="https://tiles", attempts=1, retry_after_s=None),
    RateLimitedError(url="https://tiles", attempts=1, retry_after_s=90.0),
    InvalidValueError(field="bbox", value=1, problem="is none"),
)
LONGEST_S = 600.0  # no lease, backoff or gate lasts longer
KEYS = st.sampled_from([partition_key(1), partition_key(2), partition_key(1, source="sat")])
PRIORITIES = st.sampled_from(RunPriority)
CLAIMS = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5])
"""Which of all claims that were ever made: mostly the newest, else one that may be stale."""
OUTCOMES = st.sampled_from(VerdictOutcome)
WORKERS = st.sampled_from(["w1", "w2"])


class WorkMachine(RuleBasedStateMachine):
    def __init__(self, pair: ControlPlanePair) -> None:
        super().__init__()
        self.pair = pair
        self.claims: list[Run] = []
        self.plans: list[BackfillPlan] = []
        self.seen = pair.compare_snapshots()

    def step(self, act: Callable[[ControlPlane], object]) -> object:
        """Take a step at both books, and check what every step must keep."""
        outcome = self.pair.run_on_both(act)
        assert not isinstance(outcome, DatabaseError), outcome
        before, self.seen = self.seen, self.pair.compare_snapshots(self.seen)
        if isinstance(outcome, TileManagerError):
            assert self.seen == before  # what was refused has changed nothing
        check_step(before, self.seen)
        check_snapshot(self.seen)
        return outcome

    def pick_claim(self, number: int) -> Run:
        return self.claims[-1 - number % len(self.claims)]

    def pick_partition(self, number: int) -> PartitionKey:
        keys = list(self.seen.partitions)
        return keys[number % len(keys)]

    def claim_runs(
        self, worker: str, limit: int, kinds: Sequence[RunKind] = ALL_KINDS
    ) -> Sequence[Run]:
        before = self.seen
        claimed = self.step(
            lambda desk: desk.queue.claim(WorkerId(worker), limit=limit, lease=LEASE, kinds=kinds)
        )
        assert isinstance(claimed, Sequence)
        for run in claimed:
            assert before.runs[run.run_id].status is not RunStatus.PROCESSING
        self.claims.extend(claimed)
        return claimed

    @initialize()
    def begin(self) -> None:
        self.enqueue(partition_key(1), RunPriority.FRESH)
        self.submit("F1", "sat")

    def is_held(self, held: Run) -> bool:
        run = self.seen.runs[held.run_id]
        return (run.status, run.lease_epoch) == (RunStatus.PROCESSING, held.lease_epoch)

    def has_passed(self, held: Run) -> bool:
        """Whether this very claim was ended before: told again, that counts as kept."""
        run = self.seen.runs[held.run_id]
        return (run.status, run.lease_epoch) == (RunStatus.PASSED, held.lease_epoch)

    @rule(seconds=st.sampled_from([1, 30, 59, 61, 400, 7_200]))
    def pass_time(self, seconds: int) -> None:
        self.pair.pass_time(seconds)
        self.seen = self.pair.compare_snapshots(self.seen)

    # Operators and schedulers

    @rule(flight=st.sampled_from(["F1", "F2"]), source=st.sampled_from(["osm", "sat"]))
    def submit(self, flight: str, source: str) -> None:
        work = download_work(flight, source)
        self.step(lambda desk: desk.control.submit(work, actor=Actor.OPERATOR, by="ann"))

    @rule(wanted=KEYS, priority=PRIORITIES)
    def enqueue(self, wanted: PartitionKey, priority: RunPriority) -> None:
        works = [acquire_work(wanted)]
        self.step(
            lambda desk: desk.partitions.enqueue(works, actor=Actor.SCHEDULER, priority=priority)
        )

    @rule(number=st.integers(0, 9), again=st.booleans())
    def override_run(self, *, number: int, again: bool) -> None:
        runs = sorted(self.seen.runs)
        run_id = runs[number % len(runs)]
        if again:
            self.step(lambda desk: desk.control.retry_now(run_id, reason="mended", by="ann"))
        else:
            self.step(lambda desk: desk.control.cancel(run_id, reason="wrong", by="ann"))

    @rule(numbers=st.lists(st.integers(0, 3), min_size=1, max_size=2))
    def retry_partitions(self, numbers: list[int]) -> None:
        wanted = [self.pick_partition(number) for number in numbers]
        self.step(lambda desk: desk.partitions.retry(wanted, OVERRIDE))

    @rule(number=st.integers(0, 3))
    def mark_terminal(self, number: int) -> None:
        wanted = [self.pick_partition(number)]
        self.step(lambda desk: desk.partitions.mark_terminal(wanted, OVERRIDE))

    @rule(last=st.integers(1, 3), reprocess=st.booleans(), include_terminal=st.booleans())
    def plan_backfill(self, *, last: int, reprocess: bool, include_terminal: bool) -> None:
        asked = create_backfill_request(
            1, last, reprocess=reprocess, include_terminal=include_terminal
        )
        plan = self.step(lambda desk: desk.partitions.plan(asked))
        assert isinstance(plan, BackfillPlan)
        self.plans.append(plan)

    @precondition(lambda self: self.plans)
    @rule(number=st.sampled_from([0, 0, 1, 2]))
    def apply_backfill(self, number: int) -> None:
        plan = self.plans[-1 - number % len(self.plans)]
        self.step(lambda desk: desk.partitions.apply(plan, OVERRIDE))

    @precondition(lambda self: any(self.seen.planned.values()))
    @rule(seconds=st.sampled_from([0, 200, 400, 2_400, 30_000]))
    def retry_due(self, seconds: int) -> None:
        self.pass_time(seconds)
        self.step(lambda desk: desk.partitions.retry_due())

    # Workers and sweepers

    @rule(worker=WORKERS, limit=st.integers(1, 3))
    def claim(self, worker: str, limit: int) -> None:
        self.claim_runs(worker, limit)

    @rule(worker=WORKERS, outcome=OUTCOMES)
    def work(self, worker: str, outcome: VerdictOutcome) -> None:
        for held in self.claim_runs(worker, 1):
            self.step(partial(finish, held=held, outcome=outcome))

    @rule(worker=WORKERS, seconds=st.sampled_from([0, 400, 2_400]))
    def reject_partition(self, worker: str, seconds: int) -> None:
        """And have the scheduler come by, when the retry may be due."""
        for held in self.claim_runs(worker, 1, [RunKind.ACQUIRE_PARTITION]):
            self.step(partial(finish, held=held, outcome=VerdictOutcome.FAILED))
            self.retry_due(seconds)

    @rule(worker=WORKERS, error=st.sampled_from(ERRORS), seconds=st.sampled_from([0, 30, 60]))
    def fail_run(self, worker: str, error: TileManagerError, seconds: int) -> None:
        for held in self.claim_runs(worker, 1):
            self.step(partial(report_error, held=held, error=error))
        self.pass_time(seconds)

    @precondition(lambda self: self.claims)
    @rule(number=CLAIMS)
    def renew(self, number: int) -> None:
        held = self.pick_claim(number)
        kept = self.step(lambda desk: desk.queue.renew([held], lease=LEASE))
        assert kept == [] or self.is_held(held)

    @precondition(lambda self: self.claims)
    @rule(number=CLAIMS, outcome=OUTCOMES)
    def judge(self, number: int, outcome: VerdictOutcome) -> None:
        held = self.pick_claim(number)
        self.write(held, partial(finish, held=held, outcome=outcome))

    @precondition(lambda self: self.claims)
    @rule(number=CLAIMS, error=st.sampled_from(ERRORS))
    def report_error(self, number: int, error: TileManagerError) -> None:
        held = self.pick_claim(number)
        self.write(held, partial(report_error, held=held, error=error))

    @precondition(lambda self: self.claims)
    @rule(number=CLAIMS)
    def give_back(self, number: int) -> None:
        held = self.pick_claim(number)
        self.write(held, partial(give_back, held=held))

    def write(self, held: Run, act: Callable[[ControlPlane], object]) -> None:
        """Write from a claim: it counts if that is still the newest, and else changes nothing."""
        was_held = self.is_held(held)
        said = self.step(act)
        assert isinstance(said, LeaseLostError) != was_held

    @precondition(lambda self: self.claims)
    @rule(worker=WORKERS, numbers=st.lists(CLAIMS, max_size=3))
    def exchange(self, worker: str, numbers: list[int]) -> None:
        held = {run.run_id: run for run in map(self.pick_claim, numbers)}.values()
        ended = [run for run in held if run.kind is not RunKind.ACQUIRE_PARTITION]
        expected = {run.run_id for run in ended if self.is_held(run) or self.has_passed(run)}

        def act(desk: ControlPlane) -> tuple[set[RunId], list[Run]]:
            kept, claimed = desk.queue.exchange(ended, WorkerId(worker), limit=1, lease=LEASE)
            return set(kept), list(claimed)

        outcome = self.step(act)
        assert isinstance(outcome, tuple)
        assert outcome[0] == expected
        self.claims.extend(outcome[1])

    @rule(worker=WORKERS, error=st.sampled_from(ERRORS), outcome=OUTCOMES)
    def write_after_lease_loss(
        self, worker: str, error: TileManagerError, outcome: VerdictOutcome
    ) -> None:
        """Sleep until the run is somebody else's, and then write in every way there is."""
        for held in self.claim_runs(worker, 1):
            self.sweep(60)
            self.claim_runs("w3", 3)
            if self.is_held(held):
                continue
            before = self.seen
            assert self.step(lambda desk: desk.queue.renew([held], lease=LEASE)) == []  # noqa: B023  # called at once
            assert self.step(lambda desk: desk.queue.complete([held])) == []  # noqa: B023  # as above
            self.write(held, partial(finish, held=held, outcome=outcome))
            self.write(held, partial(report_error, held=held, error=error))
            self.write(held, partial(give_back, held=held))
            assert self.seen == before

    @rule(seconds=st.sampled_from([0, 60]))
    def sweep(self, seconds: int) -> None:
        self.pass_time(seconds)
        self.step(lambda desk: desk.control.sweep())

    def teardown(self) -> None:
        """Once faults stop, honest workers bring every run to its end, within so many rounds."""
        for _ in range(3 + len(self.seen.runs)):
            if all(map(has_ended, self.seen.runs.values())):
                break
            self.pair.pass_time(LONGEST_S)
            self.step(lambda desk: desk.control.sweep())
            for held in self.claim_runs("w9", 50):
                self.step(partial(finish, held=held, outcome=VerdictOutcome.PASSED))
        assert all(map(has_ended, self.seen.runs.values()))
        pending = [one for one in self.seen.partitions.values() if one.active_run_id is not None]
        assert pending == []
        assert self.pair.compare_snapshots() == self.seen  # nothing has changed unseen
        self.pair.check_audit()


def finish(desk: ControlPlane, held: Run, outcome: VerdictOutcome) -> None:
    """Do what a worker does at the end of a run."""
    sealed = None
    if held.kind is RunKind.ACQUIRE_PARTITION:
        logical_date = date.fromisoformat(str(held.payload["logical_date"]))
        sealed = create_sealed(held, partition_key(logical_date.day, source=held.source))
    desk.control.process_result(held, create_verdict(held, outcome), sealed=sealed)


def give_back(desk: ControlPlane, held: Run) -> None:
    """Do what a worker does when it is stopped."""
    desk.control.release_run(held)


def report_error(desk: ControlPlane, held: Run, error: TileManagerError) -> Run:
    """Do what a worker does when a run breaks."""
    return desk.control.process_error(held, error)


@pytest.mark.timeout(1_800 if SOAK else 120)
def test_invariants_9_12_13_15_16_18_stores_agree_and_every_run_ends(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # thousands of lines that nobody reads
    with open_with_manual_clock(database_url) as database:
        run_state_machine_as_test(
            lambda: WorkMachine(create_pair(database, policies=POLICIES, budget=BUDGET)),  # type: ignore[arg-type]
            settings=settings(
                database=None,
                deadline=None,
                max_examples=400 if SOAK else 12,
                stateful_step_count=60 if SOAK else 25,
                suppress_health_check=list(HealthCheck),
            ),
        )
