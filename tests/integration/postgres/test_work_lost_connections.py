"""A connection that is lost while a unit of the books commits: it counts once, or not at all."""

from collections.abc import Callable

import pytest
from attrs import frozen
from support.books_pair import Snapshot
from support.partition_desk import (
    ANN,
    FAILED,
    HOPELESS,
    PASSED,
    claimed_of,
    dates,
    enqueued,
    judged,
    known,
    made,
    verdict_on,
)
from support.postgres_proxy import Cut, PostgresProxy
from support.work_desk import LEASE, W1, Desk, acquire, download, key, postgres_desk, sealed_by

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.actors import Actor
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.partitions import BackfillPlan, PartitionStatus
from tileferry.domain.runs import Run

KEY = key()


@frozen
class Case:
    """Something that is done in one unit, and what has to be there before."""

    before: Callable[[Desk], object]
    act: Callable[[Desk, object], object]


def _held(desk: Desk) -> Run:
    enqueued(desk)
    return claimed_of(desk, KEY)


def _judge(desk: Desk, held: object) -> None:
    assert isinstance(held, Run)
    desk.control.process_result(held, verdict_on(held, PASSED), sealed=sealed_by(held, KEY))


def _break(desk: Desk, held: object) -> None:
    assert isinstance(held, Run)
    desk.control.process_error(held, HOPELESS)


def _claimed(desk: Desk) -> Run:
    desk.submitted(download("F1"))
    return desk.claimed()


def _complete(desk: Desk, held: object) -> None:
    assert isinstance(held, Run)
    assert desk.queue.complete([held]) == [held.run_id]


def _overdue(desk: Desk) -> None:
    _claimed(desk)
    desk.pass_time(61)


def _due(desk: Desk) -> None:
    made(desk, FAILED)
    desk.pass_time(3_600)


def _sweep(desk: Desk, _: object) -> None:
    assert desk.control.sweep() == 1


def _retry_due(desk: Desk, _: object) -> None:
    assert desk.partitions.retry_due() == 1


def _apply(desk: Desk, plan: object) -> None:
    assert isinstance(plan, BackfillPlan)
    assert len(desk.partitions.apply(plan, ANN)) == 3


CASES: dict[str, Case] = {
    "submit": Case(
        lambda _: None,
        lambda desk, _: desk.control.submit(download("F1"), actor=Actor.OPERATOR),
    ),
    "enqueue": Case(
        lambda _: None,
        lambda desk, _: desk.partitions.enqueue([acquire(KEY)], actor=Actor.OPERATOR),
    ),
    "claim": Case(
        lambda desk: desk.submitted(download("F1")),
        lambda desk, _: desk.queue.claim(W1, limit=1, lease=LEASE),
    ),
    "renew": Case(_claimed, lambda desk, held: desk.queue.renew([held], lease=LEASE)),  # type: ignore[list-item]
    "complete": Case(_claimed, _complete),
    "judge": Case(_held, _judge),
    "break": Case(_held, _break),
    "sweep": Case(_overdue, _sweep),
    "retry": Case(
        lambda desk: made(desk, FAILED), lambda desk, _: desk.partitions.retry([KEY], ANN)
    ),
    "mark terminal": Case(
        lambda desk: made(desk, FAILED), lambda desk, _: desk.partitions.mark_terminal([KEY], ANN)
    ),
    "retry due": Case(_due, _retry_due),
    "apply": Case(lambda desk: desk.partitions.plan(dates(1, 3)), _apply),
}


@pytest.fixture
def desk(database: Database) -> Desk:
    return postgres_desk(database)


@pytest.fixture
def far(cut_off: Database) -> Desk:
    """A desk behind the proxy, with a connection that is made already."""
    behind = postgres_desk(cut_off)
    behind._numbers = iter(range(1_000, 2_000))
    behind.reader.now()
    return behind


@pytest.mark.parametrize("name", CASES)
def test_invariant_10_a_unit_whose_commit_was_lost_counts_once_or_not_at_all(
    desk: Desk, far: Desk, database: Database, proxy: PostgresProxy, name: str
) -> None:
    case = CASES[name]
    made_before = case.before(desk)
    before = Snapshot.of(desk)
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError, match="the connection was lost"):
        case.act(far, made_before)
    assert Snapshot.of(desk) == before
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    case.act(far, made_before)  # the server was asked, and said that it counted
    after = Snapshot.of(desk)
    assert after != before
    assert proxy.cuts == 2
    for wanted, partition in after.partitions.items():
        assert partition.attempt_count == len(after.verdicts[wanted])
    sequences = [entry.sequence for entry in PostgresAuditLog(database=database).entries()]
    assert sequences == list(range(1, len(sequences) + 1))


def test_invariants_9_10_a_verdict_that_is_reported_again_after_a_lost_answer_counts_once(
    desk: Desk, far: Desk, proxy: PostgresProxy
) -> None:
    """The worker may have died while it asked; whoever reports the verdict again is too late."""
    held = _held(desk)
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    _judge(far, held)
    with pytest.raises(LeaseLostError):
        _judge(desk, held)
    partition = known(desk, KEY)
    assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 1)
    assert len(desk.reader.partition_attempts(KEY)) == 1


def test_invariants_9_10_a_verdict_that_did_not_arrive_is_given_by_the_next_worker(
    desk: Desk, far: Desk, proxy: PostgresProxy
) -> None:
    held = _held(desk)
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError):
        _judge(far, held)
    desk.pass_time(61)
    assert desk.control.sweep() == 1
    run = judged(desk, PASSED)
    assert (run.run_id, run.lease_epoch) == (held.run_id, 2)
    assert known(desk, KEY).attempt_count == 1
