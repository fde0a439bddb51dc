"""Many workers at once at one queue: each run goes to one, and nobody waits for another."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from support.concurrency import (
    hold_lock,
    open_control_planes,
    run_concurrently,
    wait_for_blocked_session,
    wait_until,
)
from support.control_plane import (
    FAILED,
    LEASE,
    ControlPlane,
    create_postgres_control_plane,
    download_work,
    enqueue_partitions,
    get_partition,
    judge_partition,
    partition_key,
)

from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.session import SessionLimits
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.ports.work import RunFilter
from tileferry.domain.errors import DatabaseError, RateLimitedError, SatelliteProviderError
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.retry import build_quarantine_policy
from tileferry.domain.runs import RunPriority, RunStatus, WorkerId
from tileferry.domain.tiles.provider_faults import ProviderFault

GATES = "SELECT FROM source_gates FOR UPDATE"
BROKEN = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)
W1, W2 = WorkerId("w1"), WorkerId("w2")


@pytest.fixture
def control_plane(database: Database) -> ControlPlane:
    return create_postgres_control_plane(database)


@pytest.fixture
def control_planes(database_url: str) -> Iterator[Sequence[ControlPlane]]:
    with open_control_planes(database_url) as desks:
        yield desks


def test_invariant_13_concurrent_claims_never_return_the_same_run(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    submitted = {
        control_plane.submit_run(download_work(f"F{n}", source=f"s{n % 3}")).run_id
        for n in range(300)
    }

    def drain(one: ControlPlane) -> list[tuple[str, int]]:
        mine: list[tuple[str, int]] = []
        worker = WorkerId(one.new_run_id())
        while claimed := one.queue.claim(worker, limit=7, lease=LEASE):
            mine += [(run.run_id, run.lease_epoch) for run in claimed]
            assert {run.lease_owner for run in claimed} == {worker}
        return mine

    drained, refusals = run_concurrently(control_planes, drain)
    assert refusals == {}
    # Whoever found all that was left locked has stopped; what was let go is there for the next.
    taken = [run for mine in (*drained, drain(control_plane)) for run in mine]
    assert sorted(taken) == sorted((run_id, 1) for run_id in submitted)


def test_invariant_13_concurrent_sweeps_rescue_each_run_once(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    for _ in range(40):
        control_plane.submit_run()
    control_plane.queue.claim(W1, limit=40, lease=LEASE)
    control_plane.pass_time(61)
    swept, refusals = run_concurrently(control_planes, lambda one: one.control.sweep())
    assert (sum(swept), refusals) == (40, {})
    found = control_plane.reader.list_runs(RunFilter(), limit=99)
    assert {(run.status, run.rescues) for run in found} == {(RunStatus.ERROR, 1)}


def test_invariant_13_stalled_worker_in_a_transaction_loses_its_run(
    control_plane: ControlPlane, database_url: str
) -> None:
    """As one that was stopped, or whose machine has lost its power: its locks are ended for it."""
    control_plane.submit_run()
    held = control_plane.claim_run()
    control_plane.pass_time(61)
    still = Database.from_url(database_url, limits=SessionLimits(idle_timeout_s=0.3))

    def stand_still() -> None:
        with create_postgres_control_plane(still).store.open_unit() as unit:
            assert unit.run(held.run_id) == control_plane.get_run(held)
            assert control_plane.control.sweep() == 0
            wait_until(lambda: control_plane.control.sweep() == 1)

    with pytest.raises(DatabaseError, match="the connection was lost"):
        stand_still()
    assert control_plane.get_run(held).rescues == 1
    still.close()


def test_claim_does_not_wait_for_locked_gates(
    control_plane: ControlPlane, database_url: str
) -> None:
    waiting, limited = control_plane.submit_run(), control_plane.submit_run()
    first, second = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    control_plane.control.process_error(first, BROKEN)
    control_plane.control.process_error(
        second, RateLimitedError(url="u", attempts=1, retry_after_s=5)
    )
    control_plane.pass_time(61)
    fresh = control_plane.submit_run()
    elsewhere = control_plane.submit_run(download_work("F9", source="sat"))
    with hold_lock(database_url, GATES) as impatient:
        claimed = create_postgres_control_plane(impatient).queue.claim(W2, limit=9, lease=LEASE)
        assert [run.run_id for run in claimed] == [elsewhere.run_id]
    claimed = control_plane.queue.claim(W2, limit=9, lease=LEASE)
    assert [run.run_id for run in claimed] == [waiting.run_id, limited.run_id, fresh.run_id]


def test_error_without_rate_limit_does_not_wait_for_the_gate(
    control_plane: ControlPlane, database_url: str
) -> None:
    control_plane.submit_run()
    held = control_plane.claim_run()
    with hold_lock(database_url, GATES) as impatient:
        assert (
            create_postgres_control_plane(impatient).control.process_error(held, BROKEN).retry_count
            == 1
        )


def test_runs_can_be_renewed_and_completed_concurrently(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    """A worker's heart beats in a thread of its own, over the runs that the other is ending."""
    for _ in range(100):
        control_plane.submit_run()
    held = list(control_plane.queue.claim(W1, limit=100, lease=LEASE))
    parts = [held[start::10][::-1] for start in range(10)]
    orders = [held, held[::-1]]

    def act(one: ControlPlane) -> int:
        number = control_planes.index(one)
        if number == 0:
            return sum([len(one.queue.complete(part)) for part in parts])
        for _ in range(10):
            one.queue.renew(orders[number % 2], lease=LEASE)
        return 0

    ended, refusals = run_concurrently(control_planes[:4], act)
    assert (sum(ended), refusals) == (100, {})
    assert control_plane.reader.count_runs() == {RunStatus.PASSED: 100}


def test_concurrent_schedulers_retry_each_partition_once(
    control_plane: ControlPlane, control_planes: Sequence[ControlPlane]
) -> None:
    days = [partition_key(day) for day in range(1, 21)]
    enqueue_partitions(control_plane, *days)
    for day in days:
        judge_partition(control_plane, FAILED, day)
    control_plane.pass_time(3_600)
    tried, refusals = run_concurrently(
        control_planes, lambda one: one.partitions.retry_due(limit=5)
    )
    assert refusals == {}
    assert sum(tried) + control_plane.partitions.retry_due() == 20
    assert control_plane.reader.count_runs() == {RunStatus.FAILED: 20, RunStatus.DISCOVERED: 20}
    assert {get_partition(control_plane, day).status for day in days} == {PartitionStatus.PENDING}


def test_sweep_that_gives_up_runs_does_not_deadlock_with_an_operator(
    database: Database, database_url: str
) -> None:
    """The sweep comes to partitions in the order of leases, the operator in that of their ids."""
    desk = create_postgres_control_plane(
        database, policies=WorkPolicies(quarantine=build_quarantine_policy(0))
    )
    enqueue_partitions(desk, partition_key(1), priority=RunPriority.BACKFILL)
    enqueue_partitions(desk, partition_key(2))
    assert desk.claim_run().run_id == get_partition(desk, partition_key(2)).last_run_id
    desk.pass_time(1)
    desk.claim_run()
    desk.pass_time(61)
    lock = "SELECT FROM partitions WHERE logical_date = '2026-03-0{}' FOR UPDATE"
    with ThreadPoolExecutor(1) as pool, hold_lock(database_url, lock.format(1)) as operator:
        sweep = pool.submit(desk.control.sweep)
        wait_for_blocked_session(operator)
        with operator.transaction() as connection:
            connection.execute(text(lock.format(2)))
    assert sweep.result() == 2
    assert {get_partition(desk, partition_key(day)).status for day in (1, 2)} == {
        PartitionStatus.FAILED
    }
