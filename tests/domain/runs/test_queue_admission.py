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
    SourceGate,
    WorkerId,
    admit_due_retries,
    compute_wait_s,
    get_queue_key,
    is_due,
    take_batch,
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


def test_due_retries_join_the_line_by_submission() -> None:
    """Run ids do not sort by time, and the retry that was due first was submitted last."""
    runs = [
        evolve(
            make_waiting_run(number, NOW - (4 - number) * SECOND),
            submitted_date=NOW - number * timedelta(days=1),
        )
        for number in range(4)
    ]
    runs.append(make_waiting_run(8, NOW + SECOND))
    admitted = admit_due_retries(runs, NOW)
    assert [run.run_id for run in admitted] == ["r0003", "r0002", "r0001", "r0000"]


def test_admitted_retries_are_bounded_per_call_and_the_oldest() -> None:
    runs = [
        evolve(make_waiting_run(number, NOW), submitted_date=NOW - number * SECOND)
        for number in range(ADMIT_MAX + 5)
    ]
    admitted = admit_due_retries(runs, NOW)
    assert len(admitted) == ADMIT_MAX
    assert admitted[0].run_id == f"r{ADMIT_MAX + 4:04}"


def make_line(kinds: str, source: str = "osm") -> list[Run]:
    """Return due runs in queue order, (n)ew or (r)etries; their ids sort in reverse."""
    line = []
    for place, kind in enumerate(kinds):
        number = 99 - place
        run = evolve(NEW, run_id=RunId(f"new{number}"), source=source)
        if kind == "r":
            run = evolve(make_waiting_run(number, NOW), source=source, needs_token=True)
        line.append(evolve(run, submitted_date=NOW - timedelta(hours=10 - place)))
    return line


def test_line_stops_at_a_retry_without_token() -> None:
    line = make_line("nrrn")
    assert take_batch(line, 9, {"osm": 2}) == line
    assert take_batch(line, 9, {"osm": 1}) == line[:2]
    assert take_batch(line, 9, {"osm": 0}) == line[:1]
    assert take_batch(line, 9) == line[:1]


def test_stopped_line_does_not_stop_other_sources() -> None:
    stopped, other = make_line("rn"), make_line("rn", source="sat")
    ordered = sorted([*stopped, *other], key=get_queue_key)
    assert take_batch(ordered, 9, {"sat": 1}) == other


@given(
    st.lists(st.tuples(st.sampled_from("nr"), st.sampled_from("ab")), max_size=12),
    st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 4)}),
    st.integers(1, 6),
)
def test_tokens_delay_but_never_reorder(
    runs: list[tuple[str, str]], tokens: dict[str, int], limit: int
) -> None:
    ordered = [
        evolve(
            make_line(kind, source)[0],
            run_id=RunId(f"r{99 - place}"),
            submitted_date=NOW + place * SECOND,
        )
        for place, (kind, source) in enumerate(runs)
    ]
    batch = take_batch(ordered, limit, tokens)
    assert batch == [run for run in ordered if run in batch]
    for source, allowed in tokens.items():
        line = [run for run in ordered if run.source == source]
        taken = [run for run in batch if run.source == source]
        assert taken == line[: len(taken)]  # nobody overtakes within a source
        assert sum(run.needs_token for run in taken) <= allowed
        if len(batch) < limit and len(taken) < len(line):
            # It stopped only because its head needs a token that is not there.
            assert line[len(taken)].needs_token
            assert sum(run.needs_token for run in taken) == allowed


def test_wait_until_the_first_run_may_start() -> None:
    later = make_waiting_run(1, NOW + 30 * SECOND)
    over = evolve(later, next_retry_at=None)
    assert compute_wait_s([], NOW) is None
    assert compute_wait_s([over], NOW) is None
    assert compute_wait_s([later, over], NOW) == 30.0
    assert compute_wait_s([later, NEW], NOW) == 0.0
    assert compute_wait_s([make_waiting_run(1, NOW - SECOND)], NOW) == 0.0
    gates = [
        SourceGate(source="osm", closed_until=NOW + 90 * SECOND),
        SourceGate(source="sat"),
    ]
    assert compute_wait_s([later, NEW], NOW, gates) == 90.0
    assert compute_wait_s([NEW, evolve(NEW, source="sat")], NOW, gates) == 0.0


def test_run_with_an_expired_lease_counts_as_due() -> None:
    held = evolve(
        NEW,
        status=RunStatus.PROCESSING,
        lease_owner=WorkerId("w"),
        lease_epoch=1,
        lease_expires_at=NOW,
    )
    assert compute_wait_s([held], NOW - SECOND) is None
    assert compute_wait_s([held], NOW) == 0.0


@given(st.floats(0, 100), st.integers(0, 200))
def test_retries_never_spend_more_than_available_tokens(tokens: float, count: int) -> None:
    budget = RetryBudget(capacity=100.0, tokens=tokens)
    allowed = min(budget.retries_allowed, count)
    left = budget.spend(allowed)
    assert left.tokens >= 0
    assert budget.tokens - left.tokens <= allowed + 1e-6
