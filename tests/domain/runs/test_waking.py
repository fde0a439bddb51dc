"""Which runs compete, and what their sources' tokens have to do with it."""

from datetime import UTC, datetime, timedelta

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    WAKE_MAX,
    Run,
    RunId,
    RunKind,
    RunStatus,
    is_due,
    waking,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NEW = Run(run_id=RunId("r"), kind=RunKind.DOWNLOAD_AREA, source="osm", submitted_date=NOW)


def waiting(number: int, due: datetime) -> Run:
    return evolve(
        NEW,
        run_id=RunId(f"r{number:04}"),
        status=RunStatus.ERROR,
        error_class="retryable",
        error_message="boom",
        retry_count=1,
        next_retry_at=due,
    )


def test_new_runs_and_those_made_due_at_once_are_due() -> None:
    assert is_due(NEW, NOW)
    assert is_due(waiting(1, NOW), NOW)
    assert not is_due(waiting(1, NOW + SECOND), NOW)
    assert not is_due(evolve(waiting(1, NOW), next_retry_at=None), NOW)


def test_the_longest_due_are_woken_first_as_far_as_tokens_go() -> None:
    runs = [waiting(number, NOW - number * SECOND) for number in range(5)]
    runs.append(waiting(9, NOW + SECOND))
    runs.append(evolve(runs[0], run_id=RunId("over"), next_retry_at=None))
    woken = waking(runs, RetryBudget(capacity=10.0, tokens=3.9), NOW)
    assert [run.run_id for run in woken] == ["r0004", "r0003", "r0002"]
    assert waking(runs, RetryBudget(tokens=0.9), NOW) == []


def test_only_so_many_are_woken_at_a_time() -> None:
    runs = [waiting(number, NOW) for number in range(WAKE_MAX + 5)]
    rich = RetryBudget(capacity=1e6)
    assert len(waking(runs, rich, NOW)) == WAKE_MAX


@given(st.floats(0, 100), st.integers(0, 200))
def test_no_more_is_spent_than_there_is(tokens: float, count: int) -> None:
    budget = RetryBudget(capacity=100.0, tokens=tokens)
    allowed = min(budget.retries_allowed, count)
    left = budget.after_retry(allowed)
    assert left.tokens >= 0
    assert budget.tokens - left.tokens <= allowed + 1e-6
