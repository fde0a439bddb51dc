"""Spec 1 with fakes: the retry around an uploader, its two budgets, and giveups."""

import logging
from typing import Any

import pytest
from support.upload_env import REQUEST, UploadEnv, create_tile

from tileferry.adapters.memory import (
    MemoryAuditSink,
)
from tileferry.application import AuditTrail, C11RetryConfig
from tileferry.application.ports import TileUploader
from tileferry.application.ports.progress import ProgressEvent, RetryScheduled
from tileferry.domain.audit import (
    CallCollector,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    TileGivenUp,
    get_subject,
)
from tileferry.domain.errors import (
    FlightStateNotOnGroundError,
    InvalidValueError,
    SatelliteProviderError,
)
from tileferry.domain.retry import replay_decision
from tileferry.domain.tiles import (
    PerTileStatus,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadRequest,
    VotingStatus,
)


def records_of_kind(caplog: pytest.LogCaptureFixture, kind: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "kind", None) == kind]


def test_first_try_success_is_returned_unchanged() -> None:
    hangar = UploadEnv()
    report = hangar.create_uploader().upload_pending_tiles(REQUEST)
    assert report == UploadBatchReport.from_statuses(
        "F1",
        [
            PerTileStatus(tile_id=create_tile(n), status=TileUploadStatus.ACCEPTED)
            for n in range(10)
        ],
    )
    assert (hangar.clock.slept, hangar.list_attempts()) == ([], [0] * 10)
    assert len(hangar.inner.sent) == 1


def test_rejected_tiles_are_retried(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hangar = UploadEnv()
    bad = {create_tile(1), create_tile(4), create_tile(7)}
    hangar.inner.rejects = lambda number, tile_id: (
        "blurred" if number == 1 and tile_id in bad else None
    )
    report = hangar.create_uploader(max_in_call_retries=3).upload_pending_tiles(REQUEST)
    assert (report.outcome, report.retry_count) == (UploadOutcome.SUCCESS, 1)
    assert (report.tiles_acknowledged, report.next_retry_at_s) == (10, None)
    assert hangar.clock.slept == [2.0]
    assert sum(hangar.list_attempts()) == 3
    assert [set(sent) for sent in hangar.inner.sent] == [{create_tile(n) for n in range(10)}, bad]
    (start,) = records_of_kind(caplog, "c11.upload.session.start")
    assert (start.levelno, vars(start)["max_in_call_retries"]) == (logging.INFO, 3)
    (retry,) = records_of_kind(caplog, "c11.upload.retry")
    assert (retry.levelno, vars(retry)["attempt_number"]) == (logging.INFO, 1)
    assert (vars(retry)["sleep_s"], vars(retry)["remaining_pending_count"]) == (2.0, 3)


def test_unreadable_tile_is_not_charged_or_retried() -> None:
    hangar = UploadEnv(count=3)
    hangar.inner.unreadable = {create_tile(1)}
    for _ in range(2):
        report = hangar.create_uploader(max_per_tile_attempts=1).upload_pending_tiles(REQUEST)
        assert (report.outcome, report.tiles_unreadable) == (UploadOutcome.PARTIAL, 1)
        assert (report.tiles_given_up, report.next_retry_at_s) == (0, None)
    assert (hangar.clock.slept, hangar.list_attempts()) == ([], [0, 0, 0])
    assert hangar.list_statuses()[1] is VotingStatus.PENDING


def test_damaged_tile_is_given_up_once_its_attempts_are_spent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangar = UploadEnv(count=3)
    hangar.inner.damaged = {create_tile(1)}
    sink = MemoryAuditSink()
    for attempts in range(1, 4):
        uploader = hangar.create_uploader(max_per_tile_attempts=3)
        uploader.audit = AuditTrail(sinks=[sink], logger=logging.getLogger("tests.upload"))
        report = uploader.upload_pending_tiles(REQUEST)
        assert (report.outcome, report.tiles_unreadable) == (UploadOutcome.PARTIAL, 1)
        assert hangar.list_attempts() == [0, attempts, 0]
        assert (report.tiles_given_up, report.next_retry_at_s) == (attempts // 3, None)
    assert hangar.clock.slept == [], "damage does not heal during a wait"
    assert hangar.list_statuses()[1] is VotingStatus.UPLOAD_GIVEUP
    (record,) = hangar.fdr.records()
    assert (record.kind, record.payload) == (
        "c11.upload.giveup",
        {
            "tile_id": str(create_tile(1)),
            "attempts": 3,
            "last_rejection_reason": "checksum mismatch",
        },
    )
    (error,) = records_of_kind(caplog, "c11.upload.giveup")
    assert error.levelno == logging.ERROR
    exhausted, given_up = sink.events
    assert isinstance(exhausted, RetryExhausted)
    assert exhausted.final_exception_type == "Damaged"
    assert isinstance(given_up, TileGivenUp)


def test_remaining_count_excludes_giveups_and_includes_damaged_tiles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    hangar = UploadEnv(count=6)
    hangar.inner.damaged = {create_tile(5)}
    hangar.inner.rejects = lambda number, tile_id: (
        "blurred" if number == 1 and tile_id in map(create_tile, range(4)) else None
    )
    for _ in range(4):
        hangar.store.increment_upload_attempts(create_tile(0))
    report = hangar.create_uploader(max_per_tile_attempts=5).upload_pending_tiles(REQUEST)
    assert report.tiles_given_up == 1
    (retry,) = records_of_kind(caplog, "c11.upload.retry")
    pending = 4  # four were rejected, one is damaged, and one of these five is given up
    assert vars(retry)["remaining_pending_count"] == pending
    assert retry.getMessage().endswith("4 tiles are left")


@pytest.mark.parametrize(("giveups", "outcome"), [(0, "success"), (2, "partial")])
def test_undelivered_giveups_make_a_report_partial(giveups: int, outcome: str) -> None:
    hangar = UploadEnv(count=4)
    for number in range(giveups):
        hangar.store.update_voting_status(create_tile(number), VotingStatus.UPLOAD_GIVEUP)
    uploader = hangar.create_uploader()
    uploader.count_giveups = lambda flight: len(list(hangar.store.find_given_up(flight)))
    for delivered in (4 - giveups, 0):  # also when nothing is left to send
        report = uploader.upload_pending_tiles(REQUEST)
        assert (report.outcome, report.tiles_acknowledged) == (outcome, delivered)
        assert (report.tiles_given_up, report.undelivered_giveups) == (0, giveups)


def test_rejected_tile_is_retried_beside_unreadable_tile() -> None:
    hangar = UploadEnv(count=3)
    hangar.inner.unreadable = {create_tile(1)}
    hangar.inner.rejects = lambda number, tile_id: (
        "blurred" if number == 1 and tile_id == create_tile(2) else None
    )
    report = hangar.create_uploader().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.retry_count) == (UploadOutcome.PARTIAL, 1)
    assert (report.tiles_acknowledged, report.tiles_unreadable) == (2, 1)
    assert (hangar.clock.slept, hangar.list_attempts()) == ([2.0], [0, 0, 1])


def test_tile_with_exhausted_attempts_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangar = UploadEnv(count=3)
    poison = create_tile(1)
    for _ in range(4):
        hangar.store.increment_upload_attempts(poison)
    hangar.inner.rejects = lambda _, tile_id: "truncated" if tile_id == poison else None
    report = hangar.create_uploader(max_per_tile_attempts=5).upload_pending_tiles(REQUEST)
    assert hangar.list_statuses()[1] is VotingStatus.UPLOAD_GIVEUP
    (record,) = hangar.fdr.records()
    assert (record.kind, record.payload) == (
        "c11.upload.giveup",
        {"tile_id": str(poison), "attempts": 5, "last_rejection_reason": "truncated"},
    )
    (error,) = records_of_kind(caplog, "c11.upload.giveup")
    assert error.levelno == logging.ERROR
    # All that is left is given up: nothing is waited for, nothing is sent again.
    assert (len(hangar.inner.sent), hangar.clock.slept) == (1, [])
    assert (report.outcome, report.tiles_given_up) == (UploadOutcome.PARTIAL, 1)
    assert report.next_retry_at_s is None
    assert hangar.create_uploader().upload_pending_tiles(REQUEST).per_tile_status == ()


def test_spec1_ac4_exhausted_call_budget_returns_next_retry_time() -> None:
    hangar = UploadEnv()
    hangar.inner.rejects = lambda _, tile_id: "no" if tile_id == create_tile(0) else None
    report = hangar.create_uploader(max_in_call_retries=3).upload_pending_tiles(REQUEST)
    assert len(hangar.inner.sent) == 4
    assert hangar.clock.slept == [2.0, 4.0, 8.0]
    assert (report.outcome, report.retry_count) == (UploadOutcome.PARTIAL, 3)
    assert report.next_retry_at_s == hangar.clock.now() + 60.0
    assert hangar.list_attempts()[0] == 4


def test_spec1_ac5_backoff_is_capped() -> None:
    hangar = UploadEnv(count=1)
    hangar.inner.rejects = lambda _number, _tile: "no"
    uploader = hangar.create_uploader(
        max_in_call_retries=10, backoff_cap_s=10.0, max_per_tile_attempts=100
    )
    uploader.upload_pending_tiles(REQUEST)
    assert hangar.clock.slept == [2.0, 4.0, 8.0, *[10.0] * 7]


def test_retrying_uploader_is_a_tile_uploader() -> None:
    assert isinstance(UploadEnv().create_uploader(), TileUploader)
    assert isinstance(UploadEnv().inner, TileUploader)
    assert not isinstance(object(), TileUploader)


def test_spec1_ac11_other_methods_delegate_to_inner_uploader() -> None:
    hangar = UploadEnv(count=2)
    uploader = hangar.create_uploader()
    assert [row.tile_id for row in uploader.enumerate_pending_tiles("F1")] == [
        create_tile(0),
        create_tile(1),
    ]
    uploader.confirm_flight_state()
    assert hangar.inner.confirmed == 1


@pytest.mark.parametrize(
    "error",
    [
        FlightStateNotOnGroundError(flight_id="F1", state="airborne"),
        SatelliteProviderError(reason="down"),
        KeyboardInterrupt(),
    ],
)
def test_errors_of_inner_uploader_are_not_retried(error: BaseException) -> None:
    hangar = UploadEnv()

    class Raising:
        calls = 0

        def upload_pending_tiles(self, _request: UploadRequest) -> UploadBatchReport:
            self.calls += 1
            raise error

    inner = Raising()
    with pytest.raises(type(error)) as raised:
        hangar.create_uploader(inner).upload_pending_tiles(REQUEST)
    assert raised.value is error
    assert (inner.calls, hangar.clock.slept, sum(hangar.list_attempts())) == (1, [], 0)


def test_second_call_sends_only_unacknowledged_tiles() -> None:
    hangar = UploadEnv(count=50)
    hangar.inner.rejects = lambda number, tile_id: (
        "later" if number == 1 and tile_id.x % 5 < 2 else None
    )
    uploader = hangar.create_uploader(max_in_call_retries=0)
    first = uploader.upload_pending_tiles(REQUEST)
    assert (first.tiles_acknowledged, first.tiles_rejected) == (30, 20)
    hangar.clock.advance(300)
    second = uploader.upload_pending_tiles(REQUEST)
    assert (second.outcome, second.tiles_acknowledged) == (UploadOutcome.SUCCESS, 20)
    sent_first, sent_second = map(set, hangar.inner.sent)
    assert (len(sent_first), len(sent_second)) == (50, 20)
    acked = {tile_id for tile_id in sent_first if tile_id.x % 5 >= 2}
    assert not acked & sent_second


def test_invariant_9_each_rejection_counts_once_up_to_limit() -> None:
    hangar = UploadEnv(count=6)
    hangar.inner.rejects = lambda _number, tile_id: "no" if tile_id.x % 2 else None
    refused = 0
    for _ in range(7):  # calls of an operator who does not give up either
        before = sum(hangar.list_attempts())
        report = hangar.create_uploader(max_in_call_retries=1).upload_pending_tiles(REQUEST)
        passes = hangar.inner.sent[-(report.retry_count + 1) :]
        refused = sum(tile_id.x % 2 for sent in passes for tile_id in sent)
        assert sum(hangar.list_attempts()) - before == refused
        assert max(hangar.list_attempts()) <= 5
    assert hangar.list_attempts() == [0, 5, 0, 5, 0, 5]
    assert hangar.list_statuses().count(VotingStatus.UPLOAD_GIVEUP) == 3
    assert len(list(hangar.fdr.records())) == 3


def test_failure_of_whole_batch_is_not_retried() -> None:
    hangar = UploadEnv()
    failed = UploadBatchReport(flight_id="F1", outcome=UploadOutcome.FAILURE, per_tile_status=())

    class Failing:
        def upload_pending_tiles(self, _request: UploadRequest) -> UploadBatchReport:
            return failed

    assert hangar.create_uploader(Failing()).upload_pending_tiles(REQUEST) == failed
    assert hangar.clock.slept == []


def test_failure_after_retry_is_not_audited_as_success() -> None:
    hangar = UploadEnv(count=1)
    sink = MemoryAuditSink()
    refused = PerTileStatus(
        tile_id=create_tile(0), status=TileUploadStatus.REJECTED, reason="blurred"
    )
    reports = [
        UploadBatchReport.from_statuses("F1", [refused]),
        UploadBatchReport(flight_id="F1", outcome=UploadOutcome.FAILURE, per_tile_status=()),
    ]

    class FailingLater:
        def upload_pending_tiles(self, _request: UploadRequest) -> UploadBatchReport:
            return reports.pop(0)

    uploader = hangar.create_uploader(FailingLater())
    uploader.audit = AuditTrail(logger=logging.getLogger("tests.upload"), sinks=[sink])
    assert uploader.upload_pending_tiles(REQUEST).retry_count == 1
    assert [event.event_type for event in sink.events] == ["retry_attempt"]


def test_tile_accepted_after_rejections_counts_once() -> None:
    hangar = UploadEnv(count=4)
    hangar.inner.rejects = lambda number, tile_id: "no" if number <= tile_id.x - 100 else None
    report = hangar.create_uploader().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged, report.retry_count) == (
        UploadOutcome.SUCCESS,
        4,
        3,
    )


@pytest.mark.parametrize(
    "config",
    [
        {"max_in_call_retries": -1}, {"max_in_call_retries": 1.5}, {"max_per_tile_attempts": 0},
        {"backoff_base_s": float("nan")}, {"backoff_cap_s": -1.0}, {"backoff_base_s": "2"},
    ],
)  # fmt: skip
def test_invalid_retry_config_is_rejected(config: dict[str, Any]) -> None:
    (name,) = config
    with pytest.raises(InvalidValueError, match=rf"C11RetryConfig\.{name}"):
        C11RetryConfig(**config)


def test_each_decision_is_audited_and_on_counted_is_called() -> None:
    hangar = UploadEnv(count=2)
    hangar.inner.rejects = lambda number, _tile: "blurred" if number == 1 else None
    sink = MemoryAuditSink()
    uploader = hangar.create_uploader()
    uploader.audit = AuditTrail(logger=logging.getLogger("tests.upload"), sinks=[sink])
    counts: list[list[int]] = []
    uploader.on_counted = lambda: counts.append(hangar.list_attempts())
    uploader.upload_pending_tiles(REQUEST)
    assert counts == [[1, 1]]
    event, success = sink.events
    assert isinstance(event, RetryAttempted)
    assert (event.operation, event.exception_message) == (
        "Upload flight F1",
        "2 tiles were rejected",
    )
    assert replay_decision(event.decision_record) is None
    assert isinstance(success, RetrySucceeded)
    assert (success.total_attempts, success.total_delay_seconds) == (2, 2.0)
    calls = CallCollector()
    (ended,) = filter(None, map(calls.add, sink.events))
    assert (ended.succeeded, calls.unfinished, calls.incomplete) == (True, 0, 0)


def test_wait_between_passes_is_reported() -> None:
    hangar = UploadEnv(count=2)
    hangar.inner.rejects = lambda number, _tile: "blurred" if number == 1 else None
    events: list[ProgressEvent] = []
    uploader = hangar.create_uploader()
    uploader.progress = events.append
    uploader.upload_pending_tiles(REQUEST)
    (event,) = events
    assert isinstance(event, RetryScheduled)
    assert (event.operation, event.reason, event.delay_s) == (
        "Upload flight F1",
        "2 tiles were rejected",
        2.0,
    )


def test_giveup_is_audited_with_its_decision() -> None:
    hangar = UploadEnv(count=2)
    hangar.inner.rejects = lambda _number, refused: "blurred" if refused == create_tile(0) else None
    sink = MemoryAuditSink()
    uploader = hangar.create_uploader(max_per_tile_attempts=1)
    uploader.audit = AuditTrail(logger=logging.getLogger("tests.upload"), sinks=[sink])
    uploader.upload_pending_tiles(REQUEST)
    decided, given_up = sink.events
    assert isinstance(decided, RetryExhausted)
    assert replay_decision(decided.decision_record) is None
    assert given_up == TileGivenUp(
        timestamp=decided.timestamp,
        correlation_id="F1",
        tile_id=str(create_tile(0)),
        flight_id="F1",
        attempts=1,
        last_rejection_reason="blurred",
    )
    assert get_subject(decided) == get_subject(given_up) == str(create_tile(0))


def test_persistent_rejection_is_not_audited_as_success() -> None:
    hangar = UploadEnv(count=2)
    hangar.inner.rejects = lambda _number, refused: "blurred" if refused == create_tile(0) else None
    sink = MemoryAuditSink()
    uploader = hangar.create_uploader()
    uploader.audit = AuditTrail(logger=logging.getLogger("tests.upload"), sinks=[sink])
    uploader.upload_pending_tiles(REQUEST)
    kinds = [event.event_type for event in sink.events]
    assert kinds == ["retry_attempt"] * 3 + ["retry_exhausted"]
