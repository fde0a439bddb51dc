"""Which runs compete, and what their sources' tokens have to do with it."""

from datetime import UTC, datetime, timedelta

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    ADMIT_MAX,
    Run,
    RunId,
    RunKind,
    RunStatus,
    admit_due_retries,
    is_due,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NEW = Run(run_id=RunId("r"), kind=RunKind.DOWNLOAD_AREA, source="osm", submitted_date=NOW)


def make_waiting_run(number: int, due: datetime) -> Run:
    return evolve(
        NEW,
        run_id=RunId(f"r{number:04}"),
        status=RunStatus.ERROR,
        error_class="retryable",
        error_message="boom",
        retry_count=1,
        next_retry_at=due,
    )


def test_new_runs_and_reached_retries_are_due() -> None:
    assert is_due(NEW, NOW)
    assert is_due(make_waiting_run(1, NOW), NOW)
    assert not is_due(make_waiting_run(1, NOW + SECOND), NOW)
    assert not is_due(evolve(make_waiting_run(1, NOW), next_retry_at=None), NOW)


def test_longest_due_retries_are_admitted_first_within_budget() -> None:
    runs = [make_waiting_run(number, NOW - number * SECOND) for number in range(5)]
    runs.append(make_waiting_run(9, NOW + SECOND))
    runs.append(evolve(runs[0], run_id=RunId("over"), next_retry_at=None))
    woken = admit_due_retries(runs, RetryBudget(capacity=10.0, tokens=3.9), NOW)
    assert [run.run_id for run in woken] == ["r0004", "r0003", "r0002"]
    assert admit_due_retries(runs, RetryBudget(tokens=0.9), NOW) == []


def test_admitted_retries_are_bounded_per_call() -> None:
    runs = [make_waiting_run(number, NOW) for number in range(ADMIT_MAX + 5)]
    rich = RetryBudget(capacity=1e6)
    assert len(admit_due_retries(runs, rich, NOW)) == ADMIT_MAX


@given(st.floats(0, 100), st.integers(0, 200))
def test_retries_never_spend_more_than_available_tokens(tokens: float, count: int) -> None:
    budget = RetryBudget(capacity=100.0, tokens=tokens)
    allowed = min(budget.retries_allowed, count)
    left = budget.spend(allowed)
    assert left.tokens >= 0
    assert budget.tokens - left.tokens <= allowed + 1e-6
