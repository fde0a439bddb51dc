"""A database that was away for a moment costs the control plane a moment, and nothing else."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from attrs import define, field
from support.managers import Bench
from support.partition_desk import dates, known, made
from support.work_desk import LEASE, Desk, key, memory_desk

from tileferry.application.control.control_calls import PatientCalls, at_once
from tileferry.application.control.partition_control import Override
from tileferry.application.control.work_policies import WorkPolicies
from tileferry.application.ports.work import WorkStore, WorkUnit
from tileferry.domain.audit import RetryAttempted, RetryExhausted
from tileferry.domain.errors import DatabaseError, InvalidValueError
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.retry import RetryCategory
from tileferry.domain.runs import RunStatus, VerdictOutcome

WORD = Override(by="me@here", reason="mended")


@define
class Failing:
    """Books that are out of reach a few times."""

    store: WorkStore
    failures: int = 0

    def unit(self, *, by: str | None = None) -> AbstractContextManager[WorkUnit]:
        if self.failures:
            self.failures -= 1
            raise DatabaseError(problem="is away", remedy="start it")
        return self.store.unit(by=by)


@define
class Office:
    """A desk whose books fail as they are told, and the calls that go to them."""

    bench: Bench = field(factory=Bench)
    desk: Desk = field(factory=lambda: memory_desk(policies=WorkPolicies(max_rescues=0)))
    books: Failing = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.books = Failing(self.desk.store)

    @property
    def calls(self) -> PatientCalls:
        return PatientCalls(self.bench.manager())

    def controls(self, kind: str) -> Any:
        control = getattr(self.desk, kind)
        control.store, control.calls = self.books, self.calls
        return control

    @property
    def told(self) -> list[tuple[str, str]]:
        """Return the retries by their categories."""
        return [
            (event.retry_category, event.event_type)
            for event in self.bench.events
            if isinstance(event, RetryAttempted | RetryExhausted)
        ]


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (lambda control: control.retry([key()], WORD), PartitionStatus.PENDING),
        (lambda control: control.mark_terminal([key()], WORD), PartitionStatus.FAILED),
    ],
    ids=["retry", "mark terminal"],
)
def test_an_operator_s_word_survives_a_moment_without_the_database(
    office: Office, act: Callable[[Any], object], status: PartitionStatus
) -> None:
    made(office.desk, VerdictOutcome.FAILED)
    office.books.failures = 1
    act(office.controls("partitions"))
    assert known(office.desk, key()).status is status
    assert office.told == [(RetryCategory.APPROVAL_GRANT, "retry_attempt")]


def test_a_plan_is_made_and_applied_all_the_same(office: Office) -> None:
    control = office.controls("partitions")
    office.books.failures = 2
    plan = control.plan(dates(1, 3))
    office.books.failures = 1
    assert len(control.apply(plan, WORD)) == 3
    assert office.told == [
        (RetryCategory.APPROVAL_CHECK, "retry_attempt"),
        (RetryCategory.APPROVAL_CHECK, "retry_attempt"),
        (RetryCategory.APPROVAL_GRANT, "retry_attempt"),
    ]


def test_a_run_that_lost_its_workers_is_put_aside_all_the_same(office: Office) -> None:
    run = office.desk.submitted()
    office.desk.claimed()
    office.desk.pass_time(LEASE.total_seconds() + 1)
    control = office.controls("control")
    patient = control.calls

    def away_for_the_second(category: RetryCategory, operation: str, call: Any, /) -> Any:
        office.books.failures = int(category is RetryCategory.EXECUTION_CONTAINMENT)
        return patient(category, operation, call)

    control.calls = away_for_the_second
    assert control.sweep() == 1
    assert office.desk.known(run).status is RunStatus.ERROR
    assert office.told == [(RetryCategory.EXECUTION_CONTAINMENT, "retry_attempt")]


def test_a_sweep_is_not_repeated_since_the_next_one_comes_anyway(office: Office) -> None:
    office.books.failures = 1
    with pytest.raises(DatabaseError, match="is away"):
        office.controls("control").sweep()
    assert office.told == [(RetryCategory.EXECUTION_EXPIRATION, "retry_exhausted")]


def test_what_is_refused_is_refused_once(office: Office) -> None:
    with pytest.raises(InvalidValueError, match="is not known"):
        office.controls("partitions").retry([key()], WORD)
    assert office.told == []


def test_a_mistake_of_ours_stays_what_it_is(office: Office) -> None:
    def wrong() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        office.calls(RetryCategory.APPROVAL_CHECK, "Count", wrong)


def test_without_a_manager_a_call_is_made_once() -> None:
    assert at_once(RetryCategory.APPROVAL_CHECK, "Count", lambda: 3) == 3
