"""A database that was away for a moment costs the control plane a moment, and nothing else."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from attrs import define, field
from support.control_plane import (
    LEASE,
    ControlPlane,
    create_backfill_request,
    create_judged_partition,
    create_memory_control_plane,
    get_partition,
    partition_key,
)
from support.managers import RetryBench

from tileferry.application.control.control_calls import RetryingCalls, call_once
from tileferry.application.control.partition_control import OperatorOverride
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import WorkStore, WorkUnit
from tileferry.domain.audit import RetryAttempted, RetryExhausted
from tileferry.domain.errors import DatabaseError, NotFoundError
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.retry import RetryCategory, build_quarantine_policy
from tileferry.domain.runs import RunStatus, VerdictOutcome

WORD = OperatorOverride(by="me@here", reason="mended")


@define
class FlakyWorkStore:
    """Books that are out of reach a few times."""

    store: WorkStore
    failures: int = 0

    def open_unit(self, *, by: str | None = None) -> AbstractContextManager[WorkUnit]:
        if self.failures:
            self.failures -= 1
            raise DatabaseError(problem="is away", remedy="start it")
        return self.store.open_unit(by=by)


@define
class ControlEnv:
    """A desk whose books fail as they are told, and the calls that go to them."""

    bench: RetryBench = field(factory=RetryBench)
    desk: ControlPlane = field(
        factory=lambda: create_memory_control_plane(
            policies=WorkPolicies(quarantine=build_quarantine_policy(0))
        )
    )
    books: FlakyWorkStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.books = FlakyWorkStore(self.desk.store)

    @property
    def calls(self) -> RetryingCalls:
        return RetryingCalls(self.bench.create_manager())

    def controls(self, kind: str) -> Any:
        control = getattr(self.desk, kind)
        control.store, control.calls = self.books, self.calls
        return control

    @property
    def retry_events(self) -> list[tuple[str, str]]:
        """Return the retries by their categories."""
        return [
            (event.retry_category, event.event_type)
            for event in self.bench.events
            if isinstance(event, RetryAttempted | RetryExhausted)
        ]


@pytest.fixture
def control_env() -> ControlEnv:
    return ControlEnv()


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (lambda control: control.retry([partition_key()], WORD), PartitionStatus.PENDING),
        (lambda control: control.mark_terminal([partition_key()], WORD), PartitionStatus.FAILED),
    ],
    ids=["retry", "mark terminal"],
)
def test_operator_actions_are_retried_after_database_outage(
    control_env: ControlEnv, act: Callable[[Any], object], status: PartitionStatus
) -> None:
    create_judged_partition(control_env.desk, VerdictOutcome.FAILED)
    control_env.books.failures = 1
    act(control_env.controls("partitions"))
    assert get_partition(control_env.desk, partition_key()).status is status
    assert control_env.retry_events == [(RetryCategory.APPROVAL_GRANT, "retry_attempt")]


def test_backfill_plan_and_apply_are_retried(control_env: ControlEnv) -> None:
    control = control_env.controls("partitions")
    control_env.books.failures = 2
    plan = control.plan(create_backfill_request(1, 3))
    control_env.books.failures = 1
    assert len(control.apply(plan, WORD)) == 3
    assert control_env.retry_events == [
        (RetryCategory.APPROVAL_CHECK, "retry_attempt"),
        (RetryCategory.APPROVAL_CHECK, "retry_attempt"),
        (RetryCategory.APPROVAL_GRANT, "retry_attempt"),
    ]


def test_giveup_of_abandoned_run_is_retried(control_env: ControlEnv) -> None:
    run = control_env.desk.submit_run()
    control_env.desk.claim_run()
    control_env.desk.pass_time(LEASE.total_seconds() + 1)
    control = control_env.controls("control")
    patient = control.calls

    def away_for_the_second(category: RetryCategory, operation: str, call: Any, /) -> Any:
        control_env.books.failures = int(category is RetryCategory.EXECUTION_CONTAINMENT)
        return patient(category, operation, call)

    control.calls = away_for_the_second
    assert control.sweep() == 1
    assert control_env.desk.get_run(run).status is RunStatus.ERROR
    assert control_env.retry_events == [(RetryCategory.EXECUTION_CONTAINMENT, "retry_attempt")]


def test_sweep_is_not_retried(control_env: ControlEnv) -> None:
    control_env.books.failures = 1
    with pytest.raises(DatabaseError, match="is away"):
        control_env.controls("control").sweep()
    assert control_env.retry_events == [(RetryCategory.EXECUTION_EXPIRATION, "retry_exhausted")]


def test_invalid_input_is_not_retried(control_env: ControlEnv) -> None:
    with pytest.raises(NotFoundError, match=r"partition .* not found"):
        control_env.controls("partitions").retry([partition_key()], WORD)
    assert control_env.retry_events == []


def test_programming_error_is_raised_unchanged(control_env: ControlEnv) -> None:
    def wrong() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        control_env.calls(RetryCategory.APPROVAL_CHECK, "Count", wrong)


def test_call_without_manager_runs_once() -> None:
    assert call_once(RetryCategory.APPROVAL_CHECK, "Count", lambda: 3) == 3
