"""A run: its fields fit its status, or it cannot be built."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.runs import (
    ERROR_CODES,
    RUN_STATUS_FIELDS,
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    Verdict,
    VerdictOutcome,
    has_ended,
    is_due,
    is_lease_expired,
    is_permanent,
    restore_run,
)

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)

# Every field that depends on the status, filled; and per status which must and which may be.
FILLED: dict[str, Any] = {
    "lease_owner": "w1",
    "lease_expires_at": NOW,
    "lease_epoch": 2,
    "next_retry_at": NOW,
    "error_class": "retryable",
    "error_message": "boom",
    "retry_count": 1,
    "rate_limited_count": 1,
    "rescues": 1,
    "needs_token": True,
}
COUNTS = {"retry_count", "rate_limited_count", "rescues"}
ERROR = {"error_class", "error_message"}
MUST: dict[RunStatus, set[str]] = {
    RunStatus.DISCOVERED: set(),
    RunStatus.PROCESSING: {"lease_owner", "lease_expires_at", "lease_epoch"},
    RunStatus.PASSED: {"lease_epoch"},
    RunStatus.NEEDS_REVIEW: {"lease_epoch", "error_message"},
    RunStatus.FAILED: {"lease_epoch", "error_message"},
    RunStatus.ERROR: ERROR,
}
MAY: dict[RunStatus, set[str]] = {
    RunStatus.DISCOVERED: {*ERROR, *COUNTS, "lease_epoch"},
    RunStatus.PROCESSING: {*ERROR, *COUNTS},
    RunStatus.PASSED: {"rescues"},
    RunStatus.NEEDS_REVIEW: {"rescues"},
    RunStatus.FAILED: {"rescues"},
    RunStatus.ERROR: {*COUNTS, "lease_epoch", "next_retry_at", "needs_token"},
}


def make_run(status: RunStatus = RunStatus.DISCOVERED, **fields: Any) -> Run:
    return Run(
        run_id=RunId("r1"),
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW,
        status=status,
        **fields,
    )


def pick_fields(names: set[str]) -> dict[str, Any]:
    return {name: FILLED[name] for name in names}


def test_enum_values() -> None:
    assert [status.value for status in RunStatus] == [
        "discovered",
        "processing",
        "passed",
        "needs_review",
        "failed",
        "error",
    ]
    assert [kind.value for kind in RunKind] == [
        "acquire_partition",
        "download_area",
        "upload_flight",
    ]
    assert RunPriority.FRESH < RunPriority.BACKFILL
    assert [outcome.value for outcome in VerdictOutcome] == ["passed", "needs_review", "failed"]


def test_spec4_error_class_is_stored_as_one_of_three_codes() -> None:
    assert ERROR_CODES == ("final", "retryable", "rate_limited")
    for code in ERROR_CODES:
        run = make_run(RunStatus.ERROR, error_class=code, error_message="boom")
        assert run.error_class == code
    with pytest.raises(InvalidValueError) as caught:
        make_run(RunStatus.ERROR, error_class="fatal", error_message="boom")
    assert str(caught.value) == (
        "Run.error_class: must be one of final, retryable, rate_limited (got 'fatal')"
    )


def test_spec4_new_run_has_zero_counts_and_no_schedule() -> None:
    run = make_run()
    assert run.priority is RunPriority.FRESH
    assert {name: getattr(run, name) for name in FILLED} == {
        "lease_owner": None,
        "lease_expires_at": None,
        "lease_epoch": 0,
        "next_retry_at": None,
        "error_class": None,
        "error_message": None,
        "retry_count": 0,
        "rate_limited_count": 0,
        "rescues": 0,
        "needs_token": False,
    }
    assert run.dedupe_key is None
    assert run.subject == "run r1"


@pytest.mark.parametrize("status", RunStatus)
def test_status_determines_required_and_optional_fields(status: RunStatus) -> None:
    must, may = MUST[status], MAY[status]
    assert RUN_STATUS_FIELDS[status].required == must
    assert RUN_STATUS_FIELDS[status].optional == may
    make_run(status, **pick_fields(must))
    make_run(status, **pick_fields(must | may))
    for name in must:
        with pytest.raises(InvalidValueError) as caught:
            make_run(status, **pick_fields(must - {name}))
        assert caught.value.field == f"Run.{name}"
        assert caught.value.problem == f"must be filled while the status is {status}"
    for name in FILLED.keys() - must - may:
        with pytest.raises(InvalidValueError) as caught:
            make_run(status, **pick_fields(must | {name}))
        assert caught.value.field == f"Run.{name}"
        assert caught.value.problem == f"must be empty while the status is {status}"


@pytest.mark.parametrize("status", [RunStatus.DISCOVERED, RunStatus.PROCESSING])
@pytest.mark.parametrize("name", sorted(ERROR))
def test_partial_error_is_rejected_before_verdict(name: str, status: RunStatus) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make_run(status, **pick_fields(MUST[status] | {name}))
    assert caught.value.field == "Run.error_class"
    assert caught.value.problem == "must be set together with error_message"


@pytest.mark.parametrize("name", [*sorted(COUNTS), "error"])
def test_queued_run_with_attempts_counts_its_claims(name: str) -> None:
    fields = pick_fields(ERROR if name == "error" else {name})
    with pytest.raises(InvalidValueError) as caught:
        make_run(RunStatus.DISCOVERED, **fields)
    assert caught.value.field == "Run.lease_epoch"
    assert make_run(RunStatus.DISCOVERED, lease_epoch=1, **fields).lease_epoch == 1


def test_token_is_needed_for_a_planned_retry_only() -> None:
    with pytest.raises(InvalidValueError) as caught:
        make_run(RunStatus.ERROR, **pick_fields({*ERROR, "needs_token"}))
    assert caught.value.field == "Run.needs_token"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_id", "../etc"),
        ("run_id", ""),
        ("kind", "acquire_partition"),
        ("source", "a/b"),
        ("submitted_date", NOW.replace(tzinfo=None)),
        ("priority", 0),
        ("dedupe_key", ""),
        ("status", "error"),
        ("retry_count", -1),
        ("rate_limited_count", -1),
        ("next_retry_at", NOW.replace(tzinfo=None)),
        ("error_message", ""),
        ("lease_owner", ""),
        ("lease_expires_at", NOW.replace(tzinfo=None)),
        ("lease_epoch", -1),
        ("rescues", -1),
    ],
)
def test_invalid_field_is_rejected_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        attrs.evolve(make_run(), **{name: value})
    assert caught.value.field == f"Run.{name}"


def test_is_due_is_permanent_and_has_ended_per_status() -> None:
    waiting = make_run(RunStatus.ERROR, **pick_fields({*ERROR, "next_retry_at"}))
    given_up = make_run(RunStatus.ERROR, **pick_fields(ERROR))
    held = make_run(RunStatus.PROCESSING, **pick_fields(MUST[RunStatus.PROCESSING]))
    ended = [
        make_run(status, **pick_fields(MUST[status]))
        for status in (RunStatus.PASSED, RunStatus.NEEDS_REVIEW, RunStatus.FAILED)
    ]
    assert is_due(make_run(), NOW - timedelta(days=9))
    assert [is_due(waiting, at) for at in (NOW - TICK, NOW, NOW + TICK)] == [False, True, True]
    assert not any(is_due(run, NOW + TICK) for run in [given_up, held, *ended])

    assert is_permanent(given_up)
    assert not any(is_permanent(run) for run in [make_run(), waiting, held, *ended])

    assert all(has_ended(run) for run in [given_up, *ended])
    assert not any(has_ended(run) for run in [make_run(), waiting, held])


def test_lease_has_ended_exactly_at_expiry() -> None:
    held = make_run(RunStatus.PROCESSING, **pick_fields(MUST[RunStatus.PROCESSING]))
    assert [is_lease_expired(held, at) for at in (NOW - TICK, NOW, NOW + TICK)] == [
        False,
        True,
        True,
    ]
    assert not is_lease_expired(make_run(), NOW)


def test_verdict_requires_reasons_unless_passed() -> None:
    run_id = RunId("r1")
    assert Verdict(run_id=run_id, outcome=VerdictOutcome.PASSED).explanation is None
    for outcome in (VerdictOutcome.NEEDS_REVIEW, VerdictOutcome.FAILED):
        verdict = Verdict(run_id=run_id, outcome=outcome, reasons=("2 stale", "1 gone"))
        assert verdict.explanation == "2 stale; 1 gone"
        with pytest.raises(InvalidValueError) as caught:
            Verdict(run_id=run_id, outcome=outcome)
        assert caught.value.field == "Verdict.reasons"
        assert caught.value.value == ()
        assert caught.value.problem == f"must give the reasons for {outcome}"
        assert caught.value.remedy == ""
        bads: list[Any] = ["", "\ud800", 5, None]
        for bad in bads:
            with pytest.raises(InvalidValueError, match=r"Verdict\.reasons: must be non-empty"):
                Verdict(run_id=run_id, outcome=outcome, reasons=("2 stale", bad))
    with pytest.raises(InvalidValueError) as caught:
        Verdict(run_id=run_id, outcome=VerdictOutcome.PASSED, reasons=("but",))
    assert caught.value.field == "Verdict.reasons"
    assert caught.value.value == ("but",)
    assert caught.value.problem == "must be empty for a clean pass"
    assert caught.value.remedy == "use needs_review for a pass with reasons"


@pytest.mark.parametrize(
    ("name", "value"), [("run_id", "a b"), ("outcome", "passed"), ("reasons", "text")]
)
def test_invalid_verdict_is_rejected(name: str, value: Any) -> None:
    verdict = Verdict(run_id=RunId("r1"), outcome=VerdictOutcome.FAILED, reasons=("x",))
    with pytest.raises(InvalidValueError) as caught:
        attrs.evolve(verdict, **{name: value})
    assert caught.value.field == f"Verdict.{name}"


def test_restored_run_equals_original() -> None:
    run = Run(
        run_id=RunId("r1"),
        kind=RunKind.DOWNLOAD_AREA,
        source="osm",
        submitted_date=datetime(2026, 3, 1, tzinfo=UTC),
        payload={"flight_id": "F1"},
    )
    again = restore_run(*(getattr(run, item.name) for item in attrs.fields(Run)))
    assert again == run
    assert hash(again) == hash(run)
    with pytest.raises(ValueError, match="argument"):
        restore_run("r1")
