"""What every queue of runs must do: take them in, order them, lease them, fence them."""

from datetime import timedelta

import pytest
from attrs import evolve
from support.work_desk import (
    LEASE,
    W1,
    W2,
    Desk,
    all_due,
    broken,
    busy,
    download,
    upload,
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


def test_spec4_a_new_run_has_never_been_tried(desk: Desk) -> None:
    run = desk.submitted(download("F1"))
    assert desk.known(run) == run
    assert (run.status, run.retry_count, run.next_retry_at, run.error_class) == (
        RunStatus.DISCOVERED,
        0,
        None,
        None,
    )
    assert run.payload == download("F1").payload()


def test_the_same_work_is_queued_once_until_it_has_ended(desk: Desk) -> None:
    first = desk.submitted(download("F1"))
    assert desk.submitted(download("F1")) == first
    held = desk.claimed()
    assert desk.submitted(download("F1")).run_id == first.run_id
    desk.control.process_error(held, broken())
    assert desk.submitted(download("F1")).run_id == first.run_id
    desk.pass_time(61)
    desk.queue.complete([desk.claimed()])
    assert desk.submitted(download("F1")).run_id != first.run_id


# Order


def test_spec4_new_runs_and_due_retries_compete_by_their_submission(desk: Desk) -> None:
    """The ordering example: the oldest is a retry, and one retry is not due yet."""
    oldest = desk.submitted()
    desk.control.process_error(desk.claimed(), broken())
    desk.pass_time(86_400)
    third = desk.submitted()
    desk.pass_time(86_400)
    fourth, waiting = desk.submitted(), desk.submitted(priority=RunPriority.FRESH)
    for _ in range(3):
        desk.claimed(W2)
    desk.control.process_error(desk.claimed(W2), busy(3_600))
    desk.pass_time(61)
    desk.control.sweep()  # what the second worker let go competes again
    desk.pass_time(1)
    assert [run.run_id for run in desk.queue.claim(W1, limit=9, lease=LEASE)] == []
    desk.pass_time(3_600)
    order = [run.run_id for run in all_due(desk)]
    assert order == [oldest.run_id, third.run_id, fourth.run_id, waiting.run_id]


def test_spec4_a_retry_that_is_not_due_does_not_hold_up_new_work(desk: Desk) -> None:
    old = desk.submitted()
    desk.control.process_error(desk.claimed(), broken())
    new = desk.submitted()
    assert desk.claimed().run_id == new.run_id
    assert desk.control.get_next_run_to_process(W1, lease=LEASE) is None
    desk.pass_time(61)
    retry = desk.claimed()
    assert (retry.run_id, retry.retry_count, retry.next_retry_at) == (old.run_id, 1, None)


def test_a_backfill_never_goes_before_fresh_work(desk: Desk) -> None:
    old = desk.submitted(priority=RunPriority.BACKFILL)
    desk.pass_time(1_000)
    new = desk.submitted()
    assert [desk.claimed().run_id for _ in range(2)] == [new.run_id, old.run_id]


def test_spec4_only_runs_of_the_wanted_kinds_are_claimed(desk: Desk) -> None:
    desk.submitted(download("F1"))
    wanted = desk.submitted(upload("F1"))
    assert desk.claimed(kinds=[RunKind.UPLOAD_FLIGHT]).run_id == wanted.run_id
    assert (
        desk.control.get_next_run_to_process(W1, lease=LEASE, kinds=[RunKind.UPLOAD_FLIGHT]) is None
    )


def test_a_batch_is_claimed_in_order_and_by_one_worker(desk: Desk) -> None:
    runs = [desk.submitted().run_id for _ in range(5)]
    first = [run.run_id for run in desk.queue.claim(W1, limit=3, lease=LEASE)]
    second = [run.run_id for run in desk.queue.claim(W2, limit=3, lease=LEASE)]
    assert [first, second] == [runs[:3], runs[3:]]


def test_a_run_that_has_lost_a_worker_is_given_alone(desk: Desk) -> None:
    """If it is what kills workers, it takes no other run with it."""
    runs = [desk.submitted().run_id for _ in range(6)]
    desk.queue.claim(W1, limit=1, lease=LEASE)
    desk.queue.claim(W2, limit=2, lease=timedelta(hours=1))
    lost = desk.queue.claim(W1, limit=1, lease=LEASE)[0]
    desk.pass_time(61)
    assert desk.control.sweep() == 2
    sizes = []
    while batch := desk.queue.claim(W1, limit=9, lease=LEASE):
        sizes.append([run.run_id for run in batch])
    assert sizes == [[runs[0]], [lost.run_id], runs[4:]]


def test_only_runs_of_the_wanted_sources_are_claimed(desk: Desk) -> None:
    desk.submitted(download("F1", source="osm"))
    wanted = desk.submitted(download("F2", source="sat"))
    claimed = desk.queue.claim(W1, limit=9, lease=LEASE, sources=["sat", "other"])
    assert [run.run_id for run in claimed] == [wanted.run_id]


# Leases


def test_invariant_12_each_claim_raises_the_epoch(desk: Desk) -> None:
    desk.submitted()
    for epoch in (1, 2, 3):
        held = desk.claimed()
        assert (held.lease_epoch, held.lease_owner) == (epoch, W1)
        desk.pass_time(61)
        assert desk.control.sweep() == 1


def test_invariant_12_what_a_stale_claim_writes_changes_nothing(desk: Desk) -> None:
    desk.submitted()
    stale = desk.claimed()
    desk.pass_time(61)
    desk.control.sweep()
    held = desk.claimed(W2)
    before, events = desk.known(held), len(desk.events())
    verdict = Verdict(run_id=stale.run_id, outcome=VerdictOutcome.FAILED, reasons=["no"])
    assert desk.queue.complete([stale]) == []
    assert desk.queue.renew([stale], lease=LEASE) == []
    for late in (
        lambda: desk.control.process_error(stale, broken()),
        lambda: desk.control.process_result(stale, verdict),
        lambda: desk.control.give_back(stale),
    ):
        with pytest.raises(LeaseLostError, match="has lost run"):
            late()
    assert (desk.known(held), len(desk.events())) == (before, events)
    assert desk.queue.complete([held]) == [held.run_id]


def test_invariant_12_the_same_worker_with_an_older_claim_is_stale_too(desk: Desk) -> None:
    desk.submitted()
    stale = desk.claimed()
    desk.pass_time(61)
    desk.control.sweep()
    held = desk.claimed(W1)
    assert desk.queue.complete([stale]) == []
    assert desk.queue.renew([stale, held], lease=LEASE) == [held.run_id]


def test_invariant_13_a_lease_that_is_renewed_goes_on(desk: Desk) -> None:
    desk.submitted()
    held = desk.claimed()
    for _ in range(5):
        desk.pass_time(40)
        assert desk.queue.renew([held], lease=LEASE) == [held.run_id]
        assert desk.control.sweep() == 0
    desk.pass_time(61)
    assert desk.queue.renew([held], lease=LEASE) == []


def test_invariant_13_a_dead_workers_run_is_due_again_after_one_sweep(desk: Desk) -> None:
    run = desk.submitted()
    desk.claimed()
    desk.pass_time(59)
    assert desk.control.sweep() == 0
    desk.pass_time(1)
    assert desk.control.sweep() == 1
    again = desk.claimed(W2)
    assert (again.run_id, again.retry_count, again.rescues) == (run.run_id, 0, 1)


def test_finished_work_counts_though_the_lease_ran_out_while_nobody_took_it(desk: Desk) -> None:
    desk.submitted()
    held = desk.claimed()
    desk.pass_time(3_600)
    assert desk.queue.complete([held]) == [held.run_id]


def test_an_end_that_counted_counts_when_it_is_told_again(desk: Desk) -> None:
    """Its answer may have been lost."""
    desk.submitted()
    desk.submitted()
    first, second = desk.queue.claim(W1, limit=2, lease=LEASE)
    assert desk.queue.complete([first]) == [first.run_id]
    assert set(desk.queue.complete([first, second])) == {first.run_id, second.run_id}
    stale = evolve(second, lease_epoch=second.lease_epoch + 1)
    assert desk.queue.complete([stale]) == []


def test_a_run_that_kills_its_workers_is_quarantined(desk: Desk) -> None:
    run = desk.submitted()
    for _ in range(MAX_RESCUES + 1):
        desk.claimed()
        desk.pass_time(61)
        desk.control.sweep()
    known = desk.known(run)
    assert (known.status, known.error_class, known.next_retry_at) == (
        RunStatus.ERROR,
        "final",
        None,
    )
    assert "put aside after it lost 6 workers" in (known.error_message or "")


def test_what_a_worker_gives_back_is_due_at_once_and_uncharged(desk: Desk) -> None:
    desk.submitted()
    desk.control.give_back(desk.claimed())
    again = desk.claimed(W2)
    assert (again.retry_count, again.rescues, again.lease_epoch) == (0, 0, 2)
