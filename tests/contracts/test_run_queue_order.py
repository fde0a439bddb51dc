"""The order of every queue: due runs compete by submission; retry tokens delay, never reorder."""

import pytest
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    claim_all_due,
    create_memory_control_plane,
    create_postgres_control_plane,
    download_work,
    rate_limited_error,
    unreachable_error,
    upload_work,
)

from tileferry.domain.retry import (
    RetryBudget,
)
from tileferry.domain.runs import (
    RunId,
    RunKind,
)


@pytest.fixture(params=["memory", "postgres"])
def low_budget_control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """A desk whose sources have tokens for two retries, and earn half a one by a new run."""
    budget = RetryBudget(capacity=2.0, earned_per_success=0.5, refill_per_s=0.01)
    if request.param == "memory":
        return create_memory_control_plane(budget=budget)
    return create_postgres_control_plane(request.getfixturevalue("database"), budget=budget)


def fail_and_wait(desk: ControlPlane, runs: int) -> list[RunId]:
    """Let runs fail, a second apart and with ids that sort in reverse, until all are due again."""
    desk.name_run = lambda number: f"run-{999_999 - number}"
    failed = []
    for _ in range(runs):
        desk.submit_run()
        desk.pass_time(1)
        failed.append(desk.claim_run().run_id)
    for run_id in reversed(failed):  # the oldest submission is due last
        run = desk.reader.find_run(run_id)
        assert run is not None
        desk.control.process_error(run, unreachable_error())
        desk.pass_time(1)
    desk.pass_time(60)
    return failed


def submit_later(desk: ControlPlane) -> RunId:
    run_id = desk.submit_run().run_id
    desk.pass_time(1)
    return run_id


def claim_ids(desk: ControlPlane, limit: int = 9) -> list[RunId]:
    return [run.run_id for run in desk.queue.claim(W1, limit=limit, lease=LEASE)]


def test_tokens_delay_retries_but_do_not_reorder_the_queue(
    low_budget_control_plane: ControlPlane,
) -> None:
    desk = low_budget_control_plane
    failed = fail_and_wait(desk, 5)
    desk.pass_time(1)
    new = [submit_later(desk) for _ in range(2)]
    assert claim_ids(desk) == failed[:2]  # two tokens; the new runs wait behind the third retry
    assert claim_ids(desk) == []
    assert desk.queue.get_wait_s() == 0.0  # work is due
    desk.pass_time(100)
    assert claim_ids(desk) == failed[2:3]
    desk.pass_time(1_000)
    assert claim_ids(desk) == [*failed[3:], *new]
    assert claim_ids(desk) == []


def test_new_run_that_is_older_goes_first_and_pays_nothing(
    low_budget_control_plane: ControlPlane,
) -> None:
    desk = low_budget_control_plane
    older = desk.submit_run(upload_work("F0")).run_id
    desk.pass_time(1)
    downloads = [RunKind.DOWNLOAD_AREA]
    desk.name_run = lambda number: f"a-{number}"
    for _ in range(3):
        desk.submit_run()
        desk.pass_time(1)
    failed = desk.queue.claim(W1, limit=3, lease=LEASE, kinds=downloads)
    for run in failed:
        desk.control.process_error(run, unreachable_error())
    desk.pass_time(61)
    assert claim_ids(desk) == [older, failed[0].run_id, failed[1].run_id]
    ((_, tokens),) = desk.reader.list_gates()
    assert tokens == pytest.approx(0.5, abs=0.1)  # what the new run earned


def test_stopped_line_of_one_source_leaves_others_alone(
    low_budget_control_plane: ControlPlane,
) -> None:
    desk = low_budget_control_plane
    failed = fail_and_wait(desk, 3)
    elsewhere = desk.submit_run(download_work("F9", source="sat")).run_id
    assert claim_ids(desk) == [*failed[:2], elsewhere]
    assert claim_ids(desk) == []


def test_due_retry_of_one_source_precedes_newer_runs_of_others(control_plane: ControlPlane) -> None:
    failed = fail_and_wait(control_plane, 1)
    elsewhere = control_plane.submit_run(download_work("F9", source="sat")).run_id
    claimed = [claim_ids(control_plane, limit=1) for _ in range(3)]
    assert claimed == [failed, [elsewhere], []]


def test_wait_requested_by_source_takes_no_token(low_budget_control_plane: ControlPlane) -> None:
    desk = low_budget_control_plane
    for _ in range(3):
        desk.submit_run()
    for run in desk.queue.claim(W1, limit=3, lease=LEASE):
        desk.control.process_error(run, rate_limited_error(30))
    desk.pass_time(31)
    assert len(claim_ids(desk)) == 3


def test_spec4_only_submission_orders_the_queue(control_plane: ControlPlane) -> None:
    """Ids sort against time, retries were due in reverse, and new runs come in between."""
    failed = fail_and_wait(control_plane, 4)
    new = [submit_later(control_plane) for _ in range(3)]
    claimed = [run_id for _ in range(7) for run_id in claim_ids(control_plane, limit=1)]
    assert claimed == [*failed, *new]


def test_seen_150_due_retries_and_5_new_runs_are_served_in_order() -> None:
    desk = create_memory_control_plane()
    failed = fail_and_wait(desk, 150)
    new = [submit_later(desk) for _ in range(5)]
    served: list[RunId] = []
    while len(served) < len(failed) + len(new):
        served += claim_ids(desk)
        desk.pass_time(0.5)
    assert served == [*failed, *new]


# Waiting for work


def test_wait_ends_when_retry_is_due_and_gate_opens(control_plane: ControlPlane) -> None:
    assert control_plane.queue.get_wait_s() is None
    control_plane.submit_run(download_work("F1"))
    assert control_plane.queue.get_wait_s() == 0.0
    assert control_plane.queue.get_wait_s(kinds=[RunKind.UPLOAD_FLIGHT]) is None
    assert control_plane.queue.get_wait_s(sources=["sat"]) is None
    run = control_plane.claim_run()
    assert control_plane.queue.get_wait_s() is None  # in progress
    control_plane.control.process_error(run, unreachable_error())
    assert control_plane.queue.get_wait_s() == pytest.approx(60, abs=2)
    control_plane.submit_run(download_work("F2"))
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(100))
    assert control_plane.queue.get_wait_s() == pytest.approx(100, abs=2)


def test_expired_lease_counts_as_due(control_plane: ControlPlane) -> None:
    control_plane.submit_run(download_work("F1"))
    control_plane.claim_run()
    control_plane.pass_time(61)
    assert control_plane.queue.get_wait_s() == 0.0
    assert control_plane.queue.get_wait_s(kinds=[RunKind.UPLOAD_FLIGHT]) is None
    assert control_plane.queue.get_wait_s(sources=["sat"]) is None


def test_rescued_and_requested_retries_need_no_token(
    low_budget_control_plane: ControlPlane,
) -> None:
    for _ in range(5):
        low_budget_control_plane.submit_run()
    claimed = low_budget_control_plane.queue.claim(W1, limit=5, lease=LEASE)
    for run in claimed[:2]:
        low_budget_control_plane.control.process_error(run, unreachable_error())
    low_budget_control_plane.pass_time(61)
    low_budget_control_plane.control.sweep()
    for run in claimed[:2]:
        low_budget_control_plane.control.retry_now(run.run_id, reason="the link is back", by="ann")
    assert len(claim_all_due(low_budget_control_plane)) == 5
