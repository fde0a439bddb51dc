"""A connection that is lost while a unit of the books commits: it counts once, or not at all."""

from collections.abc import Callable

import pytest
from attrs import frozen
from support.control_plane import (
    FAILED,
    FINAL_ERROR,
    LEASE,
    OVERRIDE,
    PASSED,
    W1,
    ControlPlane,
    acquire_work,
    claim_partition_run,
    create_backfill_request,
    create_judged_partition,
    create_postgres_control_plane,
    create_sealed,
    create_verdict,
    download_work,
    enqueue_partitions,
    get_partition,
    judge_partition,
    partition_key,
)
from support.control_plane_pair import Snapshot
from support.proxies import Cut, PostgresProxy

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.partitions import BackfillPlan, PartitionStatus
from tileferry.domain.runs import Run
from tileferry.domain.state_machine import Actor

KEY = partition_key()


@frozen
class Case:
    """Something that is done in one unit, and what has to be there before."""

    before: Callable[[ControlPlane], object]
    act: Callable[[ControlPlane, object], object]


def _claim_partition_run(desk: ControlPlane) -> Run:
    enqueue_partitions(desk)
    return claim_partition_run(desk, KEY)


def _judge(desk: ControlPlane, held: object) -> None:
    assert isinstance(held, Run)
    desk.control.process_result(held, create_verdict(held, PASSED), sealed=create_sealed(held, KEY))


def _fail(desk: ControlPlane, held: object) -> None:
    assert isinstance(held, Run)
    desk.control.process_error(held, FINAL_ERROR)


def _claim_run(desk: ControlPlane) -> Run:
    desk.submit_run(download_work("F1"))
    return desk.claim_run()


def _complete(desk: ControlPlane, held: object) -> None:
    assert isinstance(held, Run)
    assert desk.queue.complete([held]) == [held.run_id]


def _claim_expired_run(desk: ControlPlane) -> None:
    _claim_run(desk)
    desk.pass_time(61)


def _prepare_due_retry(desk: ControlPlane) -> None:
    create_judged_partition(desk, FAILED)
    desk.pass_time(3_600)


def _sweep(desk: ControlPlane, _: object) -> None:
    assert desk.control.sweep() == 1


def _retry_due(desk: ControlPlane, _: object) -> None:
    assert desk.partitions.retry_due() == 1


def _apply(desk: ControlPlane, plan: object) -> None:
    assert isinstance(plan, BackfillPlan)
    assert len(desk.partitions.apply(plan, OVERRIDE)) == 3


CASES: dict[str, Case] = {
    "submit": Case(
        lambda _: None,
        lambda desk, _: desk.control.submit(download_work("F1"), actor=Actor.OPERATOR),
    ),
    "enqueue": Case(
        lambda _: None,
        lambda desk, _: desk.partitions.enqueue([acquire_work(KEY)], actor=Actor.OPERATOR),
    ),
    "claim": Case(
        lambda desk: desk.submit_run(download_work("F1")),
        lambda desk, _: desk.queue.claim(W1, limit=1, lease=LEASE),
    ),
    "renew": Case(_claim_run, lambda desk, held: desk.queue.renew([held], lease=LEASE)),  # type: ignore[list-item]
    "complete": Case(_claim_run, _complete),
    "judge": Case(_claim_partition_run, _judge),
    "break": Case(_claim_partition_run, _fail),
    "sweep": Case(_claim_expired_run, _sweep),
    "retry": Case(
        lambda desk: create_judged_partition(desk, FAILED),
        lambda desk, _: desk.partitions.retry([KEY], OVERRIDE),
    ),
    "mark terminal": Case(
        lambda desk: create_judged_partition(desk, FAILED),
        lambda desk, _: desk.partitions.mark_terminal([KEY], OVERRIDE),
    ),
    "retry due": Case(_prepare_due_retry, _retry_due),
    "apply": Case(lambda desk: desk.partitions.plan(create_backfill_request(1, 3)), _apply),
}


@pytest.fixture
def control_plane(database: Database) -> ControlPlane:
    return create_postgres_control_plane(database)


@pytest.fixture
def proxied_control_plane(proxied_database: Database) -> ControlPlane:
    """A desk behind the proxy, with a connection that is made already."""
    behind = create_postgres_control_plane(proxied_database)
    behind._numbers = iter(range(1_000, 2_000))
    behind.reader.now()
    return behind


@pytest.mark.parametrize("name", CASES)
def test_invariant_10_unit_with_a_lost_commit_applies_once_or_not_at_all(
    control_plane: ControlPlane,
    proxied_control_plane: ControlPlane,
    database: Database,
    proxy: PostgresProxy,
    name: str,
) -> None:
    case = CASES[name]
    made_before = case.before(control_plane)
    before = Snapshot.from_control_plane(control_plane)
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError, match="the connection was lost"):
        case.act(proxied_control_plane, made_before)
    assert Snapshot.from_control_plane(control_plane) == before
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    case.act(proxied_control_plane, made_before)  # the server was asked, and said that it counted
    after = Snapshot.from_control_plane(control_plane)
    assert after != before
    assert proxy.cuts == 2
    for wanted, partition in after.partitions.items():
        assert partition.attempt_count == len(after.verdicts[wanted])
    sequences = [entry.sequence for entry in PostgresAuditLog(database=database).iter_entries()]
    assert sequences == list(range(1, len(sequences) + 1))


def test_invariants_9_10_verdict_repeated_after_a_lost_response_counts_once(
    control_plane: ControlPlane, proxied_control_plane: ControlPlane, proxy: PostgresProxy
) -> None:
    """The worker may have died while it asked; whoever reports the verdict again is too late."""
    held = _claim_partition_run(control_plane)
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    _judge(proxied_control_plane, held)
    with pytest.raises(LeaseLostError):
        _judge(control_plane, held)
    partition = get_partition(control_plane, KEY)
    assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 1)
    assert len(control_plane.reader.list_partition_attempts(KEY)) == 1


def test_invariants_9_10_lost_verdict_is_given_by_the_next_worker(
    control_plane: ControlPlane, proxied_control_plane: ControlPlane, proxy: PostgresProxy
) -> None:
    held = _claim_partition_run(control_plane)
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError):
        _judge(proxied_control_plane, held)
    control_plane.pass_time(61)
    assert control_plane.control.sweep() == 1
    run = judge_partition(control_plane, PASSED)
    assert (run.run_id, run.lease_epoch) == (held.run_id, 2)
    assert get_partition(control_plane, KEY).attempt_count == 1


def test_invariant_12_claim_whose_answer_was_lost_is_kept(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    desk = create_postgres_control_plane(database)
    first, second = desk.submit_run(download_work("F1")), desk.submit_run(download_work("F2"))
    other = create_postgres_control_plane(proxied_database)
    (held,) = other.queue.claim(W1, limit=1, lease=LEASE)
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    kept, claimed = other.queue.exchange([held], W1, limit=1, lease=LEASE)
    assert (kept, [run.run_id for run in claimed]) == ([first.run_id], [second.run_id])
    assert proxy.cuts == 1
