"""Random actors, verdicts, abandonments and clocks against the partition machine."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.partitions import (
    PARTITION_TRANSITIONS,
    Partition,
    PartitionKey,
    PartitionStatus,
    TerminalityPolicy,
    abandon,
    apply_verdict,
    enqueue,
    find_terminal_reason,
    get_readable_run,
    mark_terminal,
    reprocess,
    requeue,
)
from tileferry.domain.runs import RunId, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor, Change

START = datetime(2024, 1, 5, 12, tzinfo=UTC)
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)
TERMINALITY = TerminalityPolicy(max_attempts=5, max_age=timedelta(days=2))
RULES = {rule_.name: rule_ for rule_ in PARTITION_TRANSITIONS}
VERDICTS = {"accept", "reject"}
STARTS = {"requeue", "reprocess"}

VALIDATORS = st.just(Actor.VALIDATOR) | st.sampled_from(Actor)
CONTROL = st.sampled_from([Actor.OPERATOR, Actor.SCHEDULER]) | st.sampled_from(Actor)
WORKERS = st.just(Actor.WORKER) | st.sampled_from(Actor)
REASONS = st.sampled_from(["because", "because", ""])
# Mostly the newest run; else one that was given to it before.
BEHIND = st.sampled_from([0, 0, 0, 1, 2])


class PartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.runs = 1
        self.verdicts = 0
        self.judged: set[RunId] = set()
        self.partition = enqueue(KEY, RunId("r1"), actor=Actor.SCHEDULER, now=START).after

    def try_transition(self, take: Callable[[], Change[Partition]]) -> bool:
        """Take a transition if the machine lets us, and check what every one must keep."""
        before = self.partition
        try:
            change = take()
        except IllegalTransitionError:
            return False
        after = change.after
        declared = RULES[change.transition]
        assert change.before == before
        assert (before.status, after.status) in declared.moves
        assert change.actor in declared.actors
        assert change.reason or change.actor not in declared.reason_from
        assert (after.key, after.created_at) == (before.key, before.created_at)
        assert after.attempt_count == before.attempt_count + (change.transition in VERDICTS)
        if change.transition != "accept":
            assert after.current_run_id == before.current_run_id
            assert get_readable_run(after) == get_readable_run(before)
        if change.transition == "requeue" and change.actor is Actor.SCHEDULER:
            assert find_terminal_reason(before, TERMINALITY, self.now) is None
        assert (after.last_run_id != before.last_run_id) == (change.transition in STARTS)
        assert after.updated_at == self.now
        self.partition = after
        return True

    def run_id(self, behind: int) -> RunId:
        return RunId(f"r{max(1, self.runs - behind)}")

    @rule(minutes=st.sampled_from([1, 6, 40, 150, 2000]))
    def advance_clock(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(actor=VALIDATORS, outcome=st.sampled_from(VerdictOutcome), behind=BEHIND)
    def judge(self, actor: Actor, outcome: VerdictOutcome, behind: int) -> None:
        run_id = self.run_id(behind)
        reasons = () if outcome is VerdictOutcome.PASSED else ("why",)
        verdict = Verdict(run_id=run_id, outcome=outcome, reasons=reasons)
        if self.try_transition(
            lambda: apply_verdict(self.partition, verdict, self.now, actor=actor)
        ):
            assert run_id not in self.judged
            self.judged.add(run_id)
            self.verdicts += 1

    @rule(actor=WORKERS, behind=BEHIND)
    def abandon(self, actor: Actor, behind: int) -> None:
        run_id = self.run_id(behind)
        self.try_transition(
            lambda: abandon(self.partition, run_id, actor=actor, now=self.now, error="gone")
        )

    @rule(actor=CONTROL, reason=REASONS, fresh=st.sampled_from([1, 1, 0]))
    def requeue(self, actor: Actor, reason: str, fresh: int) -> None:
        run_id = RunId(f"r{self.runs + fresh}")
        taken = self.try_transition(
            lambda: requeue(
                self.partition,
                run_id,
                actor=actor,
                now=self.now,
                terminality=TERMINALITY,
                reason=reason or None,
            )
        )
        assert fresh or not taken
        self.runs += taken

    @rule(actor=CONTROL, reason=REASONS, fresh=st.sampled_from([1, 1, 0]))
    def reprocess(self, actor: Actor, reason: str, fresh: int) -> None:
        run_id = RunId(f"r{self.runs + fresh}")
        taken = self.try_transition(
            lambda: reprocess(self.partition, run_id, actor=actor, now=self.now, reason=reason)
        )
        assert fresh or not taken
        self.runs += taken

    @rule(actor=CONTROL, reason=REASONS)
    def mark_terminal(self, actor: Actor, reason: str) -> None:
        self.try_transition(
            lambda: mark_terminal(self.partition, actor=actor, now=self.now, reason=reason)
        )

    @invariant()
    def attempt_count_equals_verdicts(self) -> None:
        assert self.partition.attempt_count == self.verdicts == len(self.judged)
        assert self.partition.attempt_count <= self.runs

    @invariant()
    def readable_run_has_verdict(self) -> None:
        readable = get_readable_run(self.partition)
        assert (readable is not None) == (self.partition.status is PartitionStatus.SUCCESS)
        assert readable is None or readable in self.judged

    def teardown(self) -> None:
        """Once faults stop, an operator's requeue and a verdict lead to success."""
        if self.partition.status is PartitionStatus.FAILED:
            self.requeue(Actor.OPERATOR, "faults have stopped", 1)
        if self.partition.active_run_id is not None:
            self.judge(Actor.VALIDATOR, VerdictOutcome.PASSED, 0)
        assert self.partition.status is PartitionStatus.SUCCESS
        assert self.partition.active_run_id is None


TestPartitionMachine = PartitionMachine.TestCase
TestPartitionMachine.settings = settings(
    max_examples=settings().max_examples // 3, stateful_step_count=25
)
