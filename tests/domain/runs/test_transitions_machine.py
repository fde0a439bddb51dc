"""Random workers, sweepers, operators, faults and clocks against the run machine."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    RetryPolicy,
    replay_decision,
)
from tileferry.domain.runs import (
    MAX_RESCUES,
    RUN_TRANSITIONS,
    Run,
    RunId,
    RunKind,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
    cancel,
    claim,
    complete,
    has_ended,
    is_lease_expired,
    is_permanent,
    record_error,
    release,
    renew,
    rescue,
    retry_now,
    submit,
)
from tileferry.domain.state_machine import Actor, Change

START = datetime(2024, 1, 5, 12, tzinfo=UTC)
LEASE = timedelta(minutes=1)
POLICY = RetryPolicy(max_attempts=4, base_delay=30.0, max_delay=120.0, max_rate_limited=3)
R1 = RunId("r1")
RULES = {rule_.name: rule_ for rule_ in RUN_TRANSITIONS}

# Half of the asks come from the right actor, so that runs get somewhere.
WORKERS = st.just(Actor.WORKER) | st.sampled_from(Actor)
SWEEPERS = st.just(Actor.SWEEPER) | st.sampled_from(Actor)
OPERATORS = st.just(Actor.OPERATOR) | st.sampled_from(Actor)
OWNERS = st.sampled_from([WorkerId("w1"), WorkerId("w2")])
BEHIND = st.sampled_from([0, 0, 0, 1])
ERRORS = st.sampled_from([Final(), Retryable(), Retryable(), RateLimited(), RateLimited(45.0)])
REASONS = st.sampled_from(["because", "because", ""])


class RunMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.run = submit(
            run_id=R1, kind=RunKind.ACQUIRE_PARTITION, source="osm", actor=Actor.OPERATOR, now=START
        ).after

    def try_transition(self, take: Callable[[], Change[Run]]) -> None:
        """Take a transition if the machine lets us, and check what every one must keep."""
        before = self.run
        try:
            change = take()
        except IllegalTransitionError:
            return
        after = change.after
        declared = RULES[change.transition]
        assert change.before == before
        assert (before.status, after.status) in declared.moves
        assert change.actor in declared.actors
        assert change.reason or change.actor not in declared.reason_from
        assert not has_ended(before)
        assert after.submitted_date == before.submitted_date
        claimed = change.transition == "claim"
        assert after.lease_epoch == before.lease_epoch + claimed
        assert after.rescues == before.rescues + (change.transition == "rescue")
        charged = (
            change.transition == "record_error"
            and change.record is not None
            and not is_permanent(after)
            and change.record.failure.error != RateLimited(45.0)
        )
        if change.transition != "complete":
            assert after.retry_count == before.retry_count + charged
            assert after.rate_limited_count >= before.rate_limited_count
        if change.record is not None:
            assert replay_decision(change.record) is None
        self.run = after

    @rule(seconds=st.sampled_from([1, 29, 30, 60, 61, 600]))
    def advance_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(actor=WORKERS, owner=OWNERS)
    def claim(self, actor: Actor, owner: WorkerId) -> None:
        self.try_transition(
            lambda: claim(self.run, actor=actor, owner=owner, now=self.now, lease=LEASE)
        )

    @rule(actor=WORKERS, owner=OWNERS, behind=BEHIND)
    def renew(self, actor: Actor, owner: WorkerId, behind: int) -> None:
        epoch = self.run.lease_epoch - behind
        self.try_transition(
            lambda: renew(
                self.run, actor=actor, owner=owner, epoch=epoch, now=self.now, lease=LEASE
            )
        )

    @rule(actor=WORKERS, owner=OWNERS, behind=BEHIND, outcome=st.sampled_from(VerdictOutcome))
    def complete(self, actor: Actor, owner: WorkerId, behind: int, outcome: VerdictOutcome) -> None:
        epoch = self.run.lease_epoch - behind
        reasons = () if outcome is VerdictOutcome.PASSED else ("why",)
        verdict = Verdict(run_id=R1, outcome=outcome, reasons=reasons)
        self.try_transition(
            lambda: complete(self.run, verdict, actor=actor, owner=owner, epoch=epoch, now=self.now)
        )

    @rule(actor=WORKERS, owner=OWNERS, behind=BEHIND, error=ERRORS)
    def record_error(self, actor: Actor, owner: WorkerId, behind: int, error: ErrorClass) -> None:
        epoch = self.run.lease_epoch - behind
        self.try_transition(
            lambda: record_error(
                self.run,
                error,
                "boom",
                actor=actor,
                owner=owner,
                epoch=epoch,
                now=self.now,
                policy=POLICY,
            )
        )

    @rule(actor=WORKERS, owner=OWNERS, behind=BEHIND)
    def release(self, actor: Actor, owner: WorkerId, behind: int) -> None:
        epoch = self.run.lease_epoch - behind
        self.try_transition(
            lambda: release(self.run, actor=actor, owner=owner, epoch=epoch, now=self.now)
        )

    @rule(actor=SWEEPERS)
    def rescue(self, actor: Actor) -> None:
        self.try_transition(lambda: rescue(self.run, actor=actor, now=self.now))

    @rule(actor=OPERATORS, reason=REASONS, often=st.integers(0, 3))
    def cancel(self, actor: Actor, reason: str, often: int) -> None:
        if not often:  # rarely, or there would be nothing left to see
            self.try_transition(lambda: cancel(self.run, actor=actor, now=self.now, reason=reason))

    @rule(actor=OPERATORS, reason=REASONS)
    def retry_now(self, actor: Actor, reason: str) -> None:
        self.try_transition(lambda: retry_now(self.run, actor=actor, now=self.now, reason=reason))

    @invariant()
    def counts_stay_within_limits(self) -> None:
        assert self.run.retry_count <= POLICY.max_attempts - 1
        assert self.run.rate_limited_count <= POLICY.max_rate_limited
        assert self.run.rescues <= MAX_RESCUES + 1

    def teardown(self) -> None:
        """Once faults stop, the run ends: at most a rescue, a claim and a verdict away."""
        if self.run.status is RunStatus.PROCESSING:
            self.now += LEASE
            assert is_lease_expired(self.run, self.now)
            self.rescue(Actor.SWEEPER)
        if not has_ended(self.run):
            self.now = max(self.now, self.run.next_retry_at or self.now)
            self.claim(Actor.WORKER, WorkerId("w1"))
            self.complete(Actor.WORKER, WorkerId("w1"), 0, VerdictOutcome.PASSED)
            assert self.run.status is RunStatus.PASSED
        assert has_ended(self.run)


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(
    max_examples=settings().max_examples // 3, stateful_step_count=25
)
