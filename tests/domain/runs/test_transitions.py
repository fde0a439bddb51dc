"""Submit, claim, renew, complete; and the fence around a lease."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

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
from tileferry.domain.state_machine import Actor, Change

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
R1, W1 = RunId("r1"), WorkerId("w1")
PASSED = Verdict(run_id=R1, outcome=VerdictOutcome.PASSED)


def make_run(**fields: Any) -> Run:
    return Run(
        run_id=R1,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW - MINUTE,
        **fields,
    )


def make_waiting_run(next_retry_at: datetime | None = NOW) -> Run:
    return make_run(
        status=RunStatus.ERROR,
        retry_count=3,
        rate_limited_count=2,
        next_retry_at=next_retry_at,
        error_class="retryable",
        error_message="boom",
        lease_epoch=5,
        rescues=1,
    )


def make_claimed_run() -> Run:
    return make_run(
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


def test_submit_creates_discovered_run_dated_now() -> None:
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


def test_submit_accepts_priority_and_dedupe_key() -> None:
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


def test_claim_grants_first_lease() -> None:
    change = claim(make_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=MINUTE)
    assert change == Change(
        transition="claim",
        actor=Actor.WORKER,
        before=make_run(),
        after=make_run(
            status=RunStatus.PROCESSING,
            lease_owner=W1,
            lease_expires_at=NOW + MINUTE,
            lease_epoch=1,
        ),
        reason=None,
        at=NOW,
    )


def test_spec4_phase4_claim_clears_next_retry_at_and_keeps_retry_count() -> None:
    change = claim(make_waiting_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=MINUTE)
    assert change.before == make_waiting_run()
    assert change.after == make_claimed_run()


def test_spec4_retry_is_not_claimed_before_due() -> None:
    early = NOW - TICK
    with pytest.raises(IllegalTransitionError) as caught:
        claim(make_waiting_run(), actor=Actor.WORKER, owner=W1, now=early, lease=MINUTE)
    assert caught.value.problem == "it is not due until 2024-01-05 12:00:00 UTC"


def test_spec4_permanent_error_is_never_claimed() -> None:
    late = NOW + timedelta(days=365)
    with pytest.raises(IllegalTransitionError) as caught:
        claim(make_waiting_run(None), actor=Actor.WORKER, owner=W1, now=late, lease=MINUTE)
    assert caught.value.problem == "it is given up"


@pytest.mark.parametrize("lease", [timedelta(0), -TICK, timedelta(days=3_651), 5])
def test_invalid_lease_duration_is_rejected(lease: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        claim(make_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=lease)
    assert caught.value.field == "lease"
    assert caught.value.value == lease
    assert caught.value.problem == ("must be a positive duration of at most 3650 days")
    with pytest.raises(InvalidValueError):
        renew(make_claimed_run(), actor=Actor.WORKER, owner=W1, epoch=6, now=NOW, lease=lease)


def test_shortest_lease_is_accepted() -> None:
    run = claim(make_run(), actor=Actor.WORKER, owner=W1, now=NOW, lease=TICK).after
    assert run.lease_expires_at == NOW + TICK


def test_renew_changes_only_lease_expiry() -> None:
    last_moment = NOW + MINUTE - TICK
    change = renew(
        make_claimed_run(), actor=Actor.WORKER, owner=W1, epoch=6, now=last_moment, lease=3 * MINUTE
    )
    assert change == Change(
        transition="renew",
        actor=Actor.WORKER,
        before=make_claimed_run(),
        after=evolve(make_claimed_run(), lease_expires_at=last_moment + 3 * MINUTE),
        reason=None,
        at=last_moment,
    )


def test_expired_lease_is_renewed_by_its_holder() -> None:
    change = renew(
        make_claimed_run(), actor=Actor.WORKER, owner=W1, epoch=6, now=NOW + MINUTE, lease=MINUTE
    )
    assert change.after.lease_expires_at == NOW + 2 * MINUTE


@pytest.mark.parametrize(
    ("outcome", "reasons", "message"),
    [
        (VerdictOutcome.PASSED, (), None),
        (VerdictOutcome.NEEDS_REVIEW, ("2 stale", "1 gone"), "2 stale; 1 gone"),
        (VerdictOutcome.FAILED, ("bad hash",), "bad hash"),
    ],
)
def test_spec4_phase5_verdict_ends_run_and_clears_retry_fields(
    outcome: VerdictOutcome, reasons: tuple[str, ...], message: str | None
) -> None:
    verdict = Verdict(run_id=R1, outcome=outcome, reasons=reasons)
    change = complete(make_claimed_run(), verdict, actor=Actor.WORKER, owner=W1, epoch=6, now=NOW)
    assert change == Change(
        transition="complete",
        actor=Actor.WORKER,
        before=make_claimed_run(),
        after=make_run(
            status=RunStatus(outcome.value), error_message=message, lease_epoch=6, rescues=1
        ),
        reason=message,
        at=NOW,
    )


def test_late_completion_is_accepted_while_run_is_unclaimed() -> None:
    late = NOW + 10 * MINUTE
    run = complete(
        make_claimed_run(), PASSED, actor=Actor.WORKER, owner=W1, epoch=6, now=late
    ).after
    assert run.status is RunStatus.PASSED


def test_verdict_on_other_run_is_rejected() -> None:
    verdict = Verdict(run_id=RunId("r2"), outcome=VerdictOutcome.PASSED)
    with pytest.raises(IllegalTransitionError) as caught:
        complete(make_claimed_run(), verdict, actor=Actor.WORKER, owner=W1, epoch=6, now=NOW)
    assert caught.value.problem == "the verdict is for run r2"


FENCED: dict[str, Callable[[WorkerId, int], object]] = {
    "renew": lambda owner, epoch: renew(
        make_claimed_run(), actor=Actor.WORKER, owner=owner, epoch=epoch, now=NOW, lease=MINUTE
    ),
    "complete": lambda owner, epoch: complete(
        make_claimed_run(), PASSED, actor=Actor.WORKER, owner=owner, epoch=epoch, now=NOW
    ),
    "record_error": lambda owner, epoch: record_error(
        make_claimed_run(),
        Retryable(),
        "boom",
        actor=Actor.WORKER,
        owner=owner,
        epoch=epoch,
        now=NOW,
    ),
}


@pytest.mark.parametrize("name", FENCED)
@pytest.mark.parametrize(("owner", "epoch"), [("w1", 5), ("w1", 7), ("w2", 6), ("w2", 5)])
def test_stale_epoch_or_foreign_owner_is_rejected(name: str, owner: str, epoch: int) -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        FENCED[name](WorkerId(owner), epoch)
    assert caught.value.transition == name
    assert caught.value.problem == (
        f"{owner} with epoch {epoch} does not hold its lease, w1 with epoch 6 does"
    )


@pytest.mark.parametrize("name", FENCED)
def test_lease_holder_is_accepted(name: str) -> None:
    FENCED[name](W1, 6)
