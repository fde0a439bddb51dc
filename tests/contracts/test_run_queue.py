"""What every queue of runs must do: take them in, order them, lease them, fence them."""

from datetime import timedelta

import pytest
from attrs import evolve
from support.control_plane import (
    LEASE,
    W1,
    W2,
    ControlPlane,
    claim_all_due,
    download_work,
    rate_limited_error,
    unreachable_error,
    upload_work,
)

from tileferry.domain.errors import (
    LeaseLostError,
)
from tileferry.domain.runs import (
    MAX_RESCUES,
    RunKind,
    RunPriority,
    RunStatus,
    Verdict,
    VerdictOutcome,
)

# Submitting


def test_spec4_new_run_has_no_attempts(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run(download_work("F1"))
    assert control_plane.get_run(run) == run
    assert (run.status, run.retry_count, run.next_retry_at, run.error_class) == (
        RunStatus.DISCOVERED,
        0,
        None,
        None,
    )
    assert run.payload == download_work("F1").to_payload()


def test_same_work_is_queued_once_until_it_ends(control_plane: ControlPlane) -> None:
    first = control_plane.submit_run(download_work("F1"))
    assert control_plane.submit_run(download_work("F1")) == first
    held = control_plane.claim_run()
    assert control_plane.submit_run(download_work("F1")).run_id == first.run_id
    control_plane.control.process_error(held, unreachable_error())
    assert control_plane.submit_run(download_work("F1")).run_id == first.run_id
    control_plane.pass_time(61)
    control_plane.queue.complete([control_plane.claim_run()])
    assert control_plane.submit_run(download_work("F1")).run_id != first.run_id


# Order


def test_spec4_new_runs_and_due_retries_are_ordered_by_submission(
    control_plane: ControlPlane,
) -> None:
    """The ordering example: the oldest is a retry, and one retry is not due yet."""
    oldest = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    control_plane.pass_time(86_400)
    third = control_plane.submit_run()
    control_plane.pass_time(86_400)
    fourth, waiting = (
        control_plane.submit_run(),
        control_plane.submit_run(priority=RunPriority.FRESH),
    )
    for _ in range(3):
        control_plane.claim_run(W2)
    control_plane.control.process_error(control_plane.claim_run(W2), rate_limited_error(3_600))
    control_plane.pass_time(61)
    control_plane.control.sweep()  # what the second worker let go competes again
    control_plane.pass_time(1)
    assert [run.run_id for run in control_plane.queue.claim(W1, limit=9, lease=LEASE)] == []
    control_plane.pass_time(3_600)
    order = [run.run_id for run in claim_all_due(control_plane)]
    assert order == [oldest.run_id, third.run_id, fourth.run_id, waiting.run_id]


def test_spec4_retry_not_yet_due_does_not_block_new_runs(control_plane: ControlPlane) -> None:
    old = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    new = control_plane.submit_run()
    assert control_plane.claim_run().run_id == new.run_id
    assert control_plane.control.get_next_run_to_process(W1, lease=LEASE) is None
    control_plane.pass_time(61)
    retry = control_plane.claim_run()
    assert (retry.run_id, retry.retry_count, retry.next_retry_at) == (old.run_id, 1, None)


def test_fresh_run_precedes_older_backfill(control_plane: ControlPlane) -> None:
    old = control_plane.submit_run(priority=RunPriority.BACKFILL)
    control_plane.pass_time(1_000)
    new = control_plane.submit_run()
    assert [control_plane.claim_run().run_id for _ in range(2)] == [new.run_id, old.run_id]


def test_spec4_only_runs_of_requested_kinds_are_claimed(control_plane: ControlPlane) -> None:
    control_plane.submit_run(download_work("F1"))
    wanted = control_plane.submit_run(upload_work("F1"))
    assert control_plane.claim_run(kinds=[RunKind.UPLOAD_FLIGHT]).run_id == wanted.run_id
    assert (
        control_plane.control.get_next_run_to_process(
            W1, lease=LEASE, kinds=[RunKind.UPLOAD_FLIGHT]
        )
        is None
    )


def test_batches_are_claimed_in_order_without_overlap(control_plane: ControlPlane) -> None:
    runs = [control_plane.submit_run().run_id for _ in range(5)]
    first = [run.run_id for run in control_plane.queue.claim(W1, limit=3, lease=LEASE)]
    second = [run.run_id for run in control_plane.queue.claim(W2, limit=3, lease=LEASE)]
    assert [first, second] == [runs[:3], runs[3:]]


def test_rescued_run_is_claimed_alone(control_plane: ControlPlane) -> None:
    """If it is what kills workers, it takes no other run with it."""
    runs = [control_plane.submit_run().run_id for _ in range(6)]
    control_plane.queue.claim(W1, limit=1, lease=LEASE)
    control_plane.queue.claim(W2, limit=2, lease=timedelta(hours=1))
    lost = control_plane.queue.claim(W1, limit=1, lease=LEASE)[0]
    control_plane.pass_time(61)
    assert control_plane.control.sweep() == 2
    sizes = []
    while batch := control_plane.queue.claim(W1, limit=9, lease=LEASE):
        sizes.append([run.run_id for run in batch])
    assert sizes == [[runs[0]], [lost.run_id], runs[4:]]


def test_only_runs_of_requested_sources_are_claimed(control_plane: ControlPlane) -> None:
    control_plane.submit_run(download_work("F1", source="osm"))
    wanted = control_plane.submit_run(download_work("F2", source="sat"))
    claimed = control_plane.queue.claim(W1, limit=9, lease=LEASE, sources=["sat", "other"])
    assert [run.run_id for run in claimed] == [wanted.run_id]


# Leases


def test_invariant_12_each_claim_increments_lease_epoch(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    for epoch in (1, 2, 3):
        held = control_plane.claim_run()
        assert (held.lease_epoch, held.lease_owner) == (epoch, W1)
        control_plane.pass_time(61)
        assert control_plane.control.sweep() == 1


def test_invariant_12_write_with_stale_claim_changes_nothing(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    stale = control_plane.claim_run()
    control_plane.pass_time(61)
    control_plane.control.sweep()
    held = control_plane.claim_run(W2)
    before, events = control_plane.get_run(held), len(control_plane.events())
    verdict = Verdict(run_id=stale.run_id, outcome=VerdictOutcome.FAILED, reasons=["no"])
    assert control_plane.queue.complete([stale]) == []
    assert control_plane.queue.renew([stale], lease=LEASE) == []
    for late in (
        lambda: control_plane.control.process_error(stale, unreachable_error()),
        lambda: control_plane.control.process_result(stale, verdict),
        lambda: control_plane.control.release_run(stale),
    ):
        with pytest.raises(LeaseLostError, match="lost run"):
            late()
    assert (control_plane.get_run(held), len(control_plane.events())) == (before, events)
    assert control_plane.queue.complete([held]) == [held.run_id]


def test_invariant_12_older_claim_of_same_worker_is_stale(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    stale = control_plane.claim_run()
    control_plane.pass_time(61)
    control_plane.control.sweep()
    held = control_plane.claim_run(W1)
    assert control_plane.queue.complete([stale]) == []
    assert control_plane.queue.renew([stale, held], lease=LEASE) == [held.run_id]


def test_invariant_13_renewed_lease_does_not_expire(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    held = control_plane.claim_run()
    for _ in range(5):
        control_plane.pass_time(40)
        assert control_plane.queue.renew([held], lease=LEASE) == [held.run_id]
        assert control_plane.control.sweep() == 0


def test_invariant_13_expired_lease_is_renewed_unless_the_run_was_rescued(
    control_plane: ControlPlane,
) -> None:
    control_plane.submit_run()
    held = control_plane.claim_run()
    control_plane.pass_time(61)
    assert control_plane.queue.renew([held], lease=LEASE) == [held.run_id]
    assert control_plane.control.sweep() == 0
    control_plane.pass_time(61)
    assert control_plane.control.sweep() == 1
    assert control_plane.queue.renew([held], lease=LEASE) == []


def test_invariant_13_run_of_dead_worker_is_due_after_one_sweep(
    control_plane: ControlPlane,
) -> None:
    run = control_plane.submit_run()
    control_plane.claim_run()
    control_plane.pass_time(59)
    assert control_plane.control.sweep() == 0
    control_plane.pass_time(1)
    assert control_plane.control.sweep() == 1
    again = control_plane.claim_run(W2)
    assert (again.run_id, again.retry_count, again.rescues) == (run.run_id, 0, 1)


def test_completion_after_lease_expiry_counts_if_unclaimed(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    held = control_plane.claim_run()
    control_plane.pass_time(3_600)
    assert control_plane.queue.complete([held]) == [held.run_id]


def test_completion_is_idempotent(control_plane: ControlPlane) -> None:
    """Its answer may have been lost."""
    control_plane.submit_run()
    control_plane.submit_run()
    first, second = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    assert control_plane.queue.complete([first]) == [first.run_id]
    assert control_plane.queue.complete([first, second]) == [first.run_id, second.run_id]
    stale = evolve(second, lease_epoch=second.lease_epoch + 1)
    assert control_plane.queue.complete([stale]) == []


def test_run_that_kills_its_workers_is_given_up(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    for _ in range(MAX_RESCUES + 1):
        control_plane.claim_run()
        control_plane.pass_time(61)
        control_plane.control.sweep()
    known = control_plane.get_run(run)
    assert (known.status, known.error_class, known.next_retry_at) == (
        RunStatus.ERROR,
        "final",
        None,
    )
    assert "given up after losing 6 workers" in (known.error_message or "")


def test_run_given_back_is_due_at_once_without_charge(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    control_plane.control.release_run(control_plane.claim_run())
    again = control_plane.claim_run(W2)
    assert (again.retry_count, again.rescues, again.lease_epoch) == (0, 0, 2)
