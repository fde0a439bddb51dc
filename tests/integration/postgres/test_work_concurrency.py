"""Many workers at once at one queue: each run goes to one, and nobody waits for another."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from support.crowd import at_once, crowd_at, holding, wait_for_waiting, wait_until
from support.partition_desk import FAILED, enqueued, judged, known
from support.work_desk import LEASE, Desk, download, key, postgres_desk

from tileferry.adapters.postgres import Database
from tileferry.application.control.work_policies import WorkPolicies
from tileferry.application.ports.work import RunFilter
from tileferry.domain.errors import DatabaseError, RateLimitedError, SatelliteProviderError
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import RunPriority, RunStatus, WorkerId
from tileferry.domain.tiles.provider_faults import ProviderFault

GATES = "SELECT FROM source_gates FOR UPDATE"
BROKEN = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)
W1, W2 = WorkerId("w1"), WorkerId("w2")


@pytest.fixture
def desk(database: Database) -> Desk:
    return postgres_desk(database)


@pytest.fixture
def crowd(database_url: str) -> Iterator[Sequence[Desk]]:
    with crowd_at(database_url) as desks:
        yield desks


def test_invariant_13_no_two_claimers_get_the_same_run(desk: Desk, crowd: Sequence[Desk]) -> None:
    submitted = {desk.submitted(download(f"F{n}", source=f"s{n % 3}")).run_id for n in range(300)}

    def drain(one: Desk) -> list[tuple[str, int]]:
        mine: list[tuple[str, int]] = []
        worker = WorkerId(one.new_run_id())
        while claimed := one.queue.claim(worker, limit=7, lease=LEASE):
            mine += [(run.run_id, run.lease_epoch) for run in claimed]
            assert {run.lease_owner for run in claimed} == {worker}
        return mine

    drained, refusals = at_once(crowd, drain)
    assert refusals == {}
    # Whoever found all that was left locked has stopped; what was let go is there for the next.
    taken = [run for mine in (*drained, drain(desk)) for run in mine]
    assert sorted(taken) == sorted((run_id, 1) for run_id in submitted)


def test_invariant_13_of_many_sweepers_one_rescues_a_run(desk: Desk, crowd: Sequence[Desk]) -> None:
    for _ in range(40):
        desk.submitted()
    desk.queue.claim(W1, limit=40, lease=LEASE)
    desk.pass_time(61)
    swept, refusals = at_once(crowd, lambda one: one.control.sweep())
    assert (sum(swept), refusals) == (40, {})
    found = desk.reader.runs(RunFilter(), limit=99)
    assert {(run.status, run.rescues) for run in found} == {(RunStatus.ERROR, 1)}


def test_invariant_13_a_worker_that_stands_still_within_a_unit_does_not_keep_its_run(
    desk: Desk, database_url: str
) -> None:
    """As one that was stopped, or whose machine has lost its power: its locks are ended for it."""
    desk.submitted()
    held = desk.claimed()
    desk.pass_time(61)
    still = Database.at(database_url, idle_timeout_s=0.3)

    def stand_still() -> None:
        with postgres_desk(still).store.unit() as unit:
            assert unit.run(held.run_id) == desk.known(held)
            assert desk.control.sweep() == 0
            wait_until(lambda: desk.control.sweep() == 1)

    with pytest.raises(DatabaseError, match="the connection was lost"):
        stand_still()
    assert desk.known(held).rescues == 1
    still.close()


def test_a_claim_does_not_wait_for_gates_that_somebody_has_locked(
    desk: Desk, database_url: str
) -> None:
    waiting, limited = desk.submitted(), desk.submitted()
    first, second = desk.queue.claim(W1, limit=2, lease=LEASE)
    desk.control.process_error(first, BROKEN)
    desk.control.process_error(second, RateLimitedError(url="u", attempts=1, retry_after_s=5))
    desk.pass_time(61)
    fresh = desk.submitted()
    with holding(database_url, GATES) as impatient:
        claimed = postgres_desk(impatient).queue.claim(W2, limit=9, lease=LEASE)
        assert [run.run_id for run in claimed] == [fresh.run_id]
    claimed = desk.queue.claim(W2, limit=9, lease=LEASE)
    assert [run.run_id for run in claimed] == [waiting.run_id, limited.run_id]


def test_an_error_that_asks_for_no_patience_does_not_wait_for_the_gate(
    desk: Desk, database_url: str
) -> None:
    desk.submitted()
    held = desk.claimed()
    with holding(database_url, GATES) as impatient:
        assert postgres_desk(impatient).control.process_error(held, BROKEN).retry_count == 1


def test_runs_can_be_renewed_and_ended_at_once(desk: Desk, crowd: Sequence[Desk]) -> None:
    """A worker's heart beats in a thread of its own, over the runs that the other is ending."""
    for _ in range(100):
        desk.submitted()
    held = list(desk.queue.claim(W1, limit=100, lease=LEASE))
    parts = [held[start::10][::-1] for start in range(10)]
    orders = [held, held[::-1]]

    def act(one: Desk) -> int:
        number = crowd.index(one)
        if number == 0:
            return sum([len(one.queue.complete(part)) for part in parts])
        for _ in range(10):
            one.queue.renew(orders[number % 2], lease=LEASE)
        return 0

    ended, refusals = at_once(crowd[:4], act)
    assert (sum(ended), refusals) == (100, {})
    assert desk.reader.counts() == {RunStatus.PASSED: 100}


def test_spec3_s9_of_many_schedulers_one_tries_a_partition_again(
    desk: Desk, crowd: Sequence[Desk]
) -> None:
    days = [key(day) for day in range(1, 21)]
    enqueued(desk, *days)
    for day in days:
        judged(desk, FAILED, day)
    desk.pass_time(3_600)
    tried, refusals = at_once(crowd, lambda one: one.partitions.retry_due(limit=5))
    assert refusals == {}
    assert sum(tried) + desk.partitions.retry_due() == 20
    assert desk.reader.counts() == {RunStatus.FAILED: 20, RunStatus.DISCOVERED: 20}
    assert {known(desk, day).status for day in days} == {PartitionStatus.PENDING}


def test_a_sweep_that_gives_runs_up_keeps_no_partition_from_an_operator(
    database: Database, database_url: str
) -> None:
    """The sweep comes to partitions in the order of leases, the operator in that of their ids."""
    desk = postgres_desk(database, policies=WorkPolicies(max_rescues=0))
    enqueued(desk, key(1), priority=RunPriority.BACKFILL)
    enqueued(desk, key(2))
    assert desk.claimed().run_id == known(desk, key(2)).last_run_id
    desk.pass_time(1)
    desk.claimed()
    desk.pass_time(61)
    lock = "SELECT FROM partitions WHERE logical_date = '2026-03-0{}' FOR UPDATE"
    with ThreadPoolExecutor(1) as pool, holding(database_url, lock.format(1)) as operator:
        sweep = pool.submit(desk.control.sweep)
        wait_for_waiting(operator)
        with operator.transaction() as connection:
            connection.execute(text(lock.format(2)))
    assert sweep.result() == 2
    assert {known(desk, key(day)).status for day in (1, 2)} == {PartitionStatus.FAILED}
