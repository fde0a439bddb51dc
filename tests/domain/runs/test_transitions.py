"""Submit, claim, renew, complete; and the fence around a lease."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from tileferry.domain.actors import Actor
from tileferry.domain.change import Change
from tileferry.domain.errors import IllegalTransitionError, InvalidValueError
from tileferry.domain.retry import Retryable
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
    claim,
    complete,
    record_error,
    renew,
    submit,
)

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
R1, W1 = RunId("r1"), WorkerId("w1")
PASSED = Verdict(run_id=R1, outcome=VerdictOutcome.PASSED)


def new_run(**fields: Any) -> Run:
    return Run(
        run_id=R1,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW - MINUTE,
        **fields,
    )


def waiting_run(next_retry_at: datetime | None = NOW) -> Run:
    return new_run(
        status=RunStatus.ERROR,
        retry_count=3,
        rate_limited_count=2,
        next_retry_at=next_retry_at,
        error_class="retryable",
        error_message="boom",
        lease_epoch=5,
        rescues=1,
    )


def held_run() -> Run:
    return new_run(
        status=RunStatus.PROCESSING,
        retry_count=3,
        rate_limited_count=2,
        error_class="retryable",
        error_message="boom",
        lease_owner=W1,
        lease_expires_at=NOW + MINUTE,
        lease_epoch=6,
        rescues=1,
    )


def test_submit_makes_a_discovered_run_dated_now() -> None:
    change = submit(
        run_id=R1, kind=RunKind.UPLOAD_FLIGHT, source="osm", actor=Actor.OPERATOR, now=NOW
    )
    assert change == Change(
        transition="submit",
        actor=Actor.OPERATOR,
        before=None,
        after=Run(
            run_id=R1,
            kind=RunKind.UPLOAD_FLIGHT,
            source="osm",
            submitted_date=NOW,
            priority=RunPriority.FRESH,
            dedupe_key=None,
            status=RunStatus.DISCOVERED,
        ),
        reason=None,
        at=NOW,
    )


def test_submit_takes_a_priority_and_a_dedupe_key() -> None:
    run = submit(
        run_id=R1,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        actor=Actor.SCHEDULER,
        now=NOW,
        priority=RunPriority.BACKFILL,
        dedupe_key="osm/acme/roads/2024-01-01",
    ).after
    assert run.priority is RunPriority.BACKFILL
    assert run.dedupe_key == "osm/acme/roads/2024-01-01"


def test_claim_gives_a_new_run_its_first_lease() -> None:
    change = claim(new_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=MINUTE)
    assert change == Change(
        transition="claim",
        actor=Actor.WORKER,
        before=new_run(),
        after=new_run(
            status=RunStatus.PROCESSING,
            lease_owner=W1,
            lease_expires_at=NOW + MINUTE,
            lease_epoch=1,
        ),
        reason=None,
        at=NOW,
    )


def test_spec4_phase4_starting_clears_next_retry_at_and_preserves_retry_count() -> None:
    change = claim(waiting_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=MINUTE)
    assert change.before == waiting_run()
    assert change.after == held_run()


def test_spec4_a_retry_is_not_claimed_before_its_time() -> None:
    early = NOW - TICK
    with pytest.raises(IllegalTransitionError) as caught:
        claim(waiting_run(), actor=Actor.WORKER, owner=W1, now=early, lease=MINUTE)
    assert caught.value.problem == "it is not due before 2024-01-05 12:00:00 UTC"


def test_spec4_a_permanent_error_is_never_claimed() -> None:
    late = NOW + timedelta(days=365)
    with pytest.raises(IllegalTransitionError) as caught:
        claim(waiting_run(None), actor=Actor.WORKER, owner=W1, now=late, lease=MINUTE)
    assert caught.value.problem == "it has been given up"


@pytest.mark.parametrize("lease", [timedelta(0), -TICK, timedelta(days=3_651), 5])
def test_a_lease_lasts(lease: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        claim(new_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=lease)
    assert caught.value.field == "lease"
    assert caught.value.value == lease
    assert caught.value.problem == ("must be a duration longer than nothing and at most 3650 days")
    with pytest.raises(InvalidValueError):
        renew(held_run(), actor=Actor.WORKER, owner=W1, epoch=6, now=NOW, lease=lease)


def test_the_shortest_lease_is_one() -> None:
    run = claim(new_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=TICK).after
    assert run.lease_expires_at == NOW + TICK


def test_renew_moves_the_expiry_and_nothing_else() -> None:
    last_moment = NOW + MINUTE - TICK
    change = renew(
        held_run(), actor=Actor.WORKER, owner=W1, epoch=6, now=last_moment, lease=3 * MINUTE
    )
    assert change == Change(
        transition="renew",
        actor=Actor.WORKER,
        before=held_run(),
        after=evolve(held_run(), lease_expires_at=last_moment + 3 * MINUTE),
        reason=None,
        at=last_moment,
    )


def test_a_lease_that_ends_right_now_cannot_be_renewed() -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        renew(held_run(), actor=Actor.WORKER, owner=W1, epoch=6, now=NOW + MINUTE, lease=MINUTE)
    assert caught.value.problem == "its lease ran out at 2024-01-05 12:01:00 UTC"


@pytest.mark.parametrize(
    ("outcome", "reasons", "message"),
    [
        (VerdictOutcome.PASSED, (), None),
        (VerdictOutcome.NEEDS_REVIEW, ("2 stale", "1 gone"), "2 stale; 1 gone"),
        (VerdictOutcome.FAILED, ("bad hash",), "bad hash"),
    ],
)
def test_spec4_phase5_a_verdict_ends_the_run_and_clears_its_retry_fields(
    outcome: VerdictOutcome, reasons: tuple[str, ...], message: str | None
) -> None:
    verdict = Verdict(run_id=R1, outcome=outcome, reasons=reasons)
    change = complete(held_run(), verdict, actor=Actor.WORKER, owner=W1, epoch=6, now=NOW)
    assert change == Change(
        transition="complete",
        actor=Actor.WORKER,
        before=held_run(),
        after=new_run(
            status=RunStatus(outcome.value), error_message=message, lease_epoch=6, rescues=1
        ),
        reason=message,
        at=NOW,
    )


def test_work_finished_after_the_lease_counts_while_nobody_took_the_run() -> None:
    late = NOW + 10 * MINUTE
    run = complete(held_run(), PASSED, actor=Actor.WORKER, owner=W1, epoch=6, now=late).after
    assert run.status is RunStatus.PASSED


def test_a_verdict_on_another_run_is_refused() -> None:
    verdict = Verdict(run_id=RunId("r2"), outcome=VerdictOutcome.PASSED)
    with pytest.raises(IllegalTransitionError) as caught:
        complete(held_run(), verdict, actor=Actor.WORKER, owner=W1, epoch=6, now=NOW)
    assert caught.value.problem == "the verdict is on run r2"


FENCED: dict[str, Callable[[WorkerId, int], object]] = {
    "renew": lambda owner, epoch: renew(
        held_run(), actor=Actor.WORKER, owner=owner, epoch=epoch, now=NOW, lease=MINUTE
    ),
    "complete": lambda owner, epoch: complete(
        held_run(), PASSED, actor=Actor.WORKER, owner=owner, epoch=epoch, now=NOW
    ),
    "record_error": lambda owner, epoch: record_error(
        held_run(), Retryable(), "boom", actor=Actor.WORKER, owner=owner, epoch=epoch, now=NOW
    ),
}


@pytest.mark.parametrize("name", FENCED)
@pytest.mark.parametrize(("owner", "epoch"), [("w1", 5), ("w1", 7), ("w2", 6), ("w2", 5)])
def test_a_stale_epoch_or_a_foreign_owner_is_fenced_off(name: str, owner: str, epoch: int) -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        FENCED[name](WorkerId(owner), epoch)
    assert caught.value.transition == name
    assert caught.value.problem == (
        f"{owner} with epoch {epoch} does not hold its lease, w1 with epoch 6 does"
    )


@pytest.mark.parametrize("name", FENCED)
def test_the_holder_passes_the_fence(name: str) -> None:
    FENCED[name](W1, 6)
