"""Retry failed uploads of tiles, within one call and within each tile's budget."""

from collections.abc import Callable, Iterator
from logging import Logger
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from tileferry.application.audit import (
    AuditTrail,
    CallContext,
    build_giveup_event,
    report_retry,
)
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.fdr import GIVEUP_KIND, FdrClient
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.application.ports.tiles import UploadStatusStore
from tileferry.application.ports.uploads import TileUploader
from tileferry.domain.retry import (
    UPLOAD_TILE,
    FailedAttempt,
    Failure,
    GiveUp,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
    build_upload_policy,
    decide,
)
from tileferry.domain.tiles import (
    MAX_PER_TILE_ATTEMPTS,
    PerTileStatus,
    TileMetadata,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadPasses,
    UploadRequest,
    VotingStatus,
    compute_next_retry_hint,
    should_give_up,
)
from tileferry.domain.validation import as_float, integer, number

if TYPE_CHECKING:
    from tileferry.domain.canonical import JsonValue


@frozen(kw_only=True)
class C11RetryConfig:
    """The retry limits of one call, and of each tile over all calls."""

    max_in_call_retries: int = field(default=3, validator=integer(0, 100))
    max_per_tile_attempts: int = field(default=MAX_PER_TILE_ATTEMPTS, validator=integer(1, 1_000))
    backoff_base_s: float = field(default=2.0, converter=as_float, validator=number(0, 3_600))
    backoff_cap_s: float = field(default=60.0, converter=as_float, validator=number(0, 86_400))


@define(kw_only=True)
class IdempotentRetryTileUploader:
    """An uploader that retries another one. Acknowledged tiles are not sent again."""

    inner: TileUploader
    tile_metadata_store: UploadStatusStore
    fdr_client: FdrClient
    logger: Logger
    clock: Clock
    config: C11RetryConfig
    audit: AuditTrail | None = None
    """Records each decision, for explanation and replay."""
    progress: ProgressListener = NULL_LISTENER
    """Receives ``RetryScheduled`` before each wait."""
    on_counted: Callable[[], None] | None = None
    """Called when all failures of a pass are counted durably."""
    count_giveups: Callable[[str], int] | None = None
    """Counts a flight's tiles in giveup; without it, reports omit those of earlier calls."""

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Send the pending tiles, and repeat while rejected tiles may still be retried.

        Errors of the inner uploader pass through: they are not a partial success.
        """
        self._log_start(request)
        report = self._upload(request)
        if self.count_giveups is None:
            return report
        return report.with_giveups(self.count_giveups(request.flight_id))

    def _upload(self, request: UploadRequest) -> UploadBatchReport:
        passes = UploadPasses()
        retries_used, waited_s = 0, 0.0
        while True:
            report = self.inner.upload_pending_tiles(request)
            if report.outcome is not UploadOutcome.PARTIAL:
                if not retries_used:
                    return report  # a single pass needs no summing
                if report.outcome is UploadOutcome.SUCCESS:
                    self._audit_success(request, attempts=retries_used + 1, waited_s=waited_s)
                passes.add(report)
                return passes.build_report()
            given_up = self._count_failures(report)
            if self.on_counted is not None:
                self.on_counted()
            passes.add(evolve(report, tiles_given_up=report.tiles_given_up + given_up))
            if not self._has_more_to_send(request, report):
                return passes.build_report()  # only giveups and unreadable tiles remain
            remaining = report.tiles_rejected + report.tiles_unreadable - given_up
            decision = self._decide_on_retry(request, retries_used, report.tiles_rejected)
            if isinstance(decision, GiveUp):
                hint_s = compute_next_retry_hint(self.clock.now(), self.config.backoff_cap_s)
                return passes.build_report(next_retry_at_s=hint_s)
            retries_used += 1
            waited_s += decision.delay_s
            self._log_retry(request, retries_used, decision.delay_s, remaining)
            self.clock.sleep(decision.delay_s)

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        return self.inner.enumerate_pending_tiles(flight_id)

    def confirm_flight_state(self) -> None:
        """Refuse unless the aircraft is on the ground."""
        self.inner.confirm_flight_state()

    def _count_failures(self, report: UploadBatchReport) -> int:
        """Count an attempt for each rejected or damaged tile; return how many are given up."""
        given_up = 0
        for entry in report.per_tile_status.failures:
            if not entry.is_charged:
                continue
            known = () if entry.attempt is None else (entry.attempt,)
            attempts = self.tile_metadata_store.increment_upload_attempts(entry.tile_id, *known)
            if should_give_up(attempts, self.config.max_per_tile_attempts):
                self._give_up(report.flight_id, entry, attempts)
                given_up += 1
        return given_up

    def _give_up(self, flight_id: str, entry: PerTileStatus, attempts: int) -> None:
        """Give a tile up, and record that for a human.

        The recorder comes first: a crash in between records a giveup twice, but loses none.
        """
        payload: dict[str, JsonValue] = {
            "tile_id": str(entry.tile_id),
            "attempts": attempts,
            "last_rejection_reason": entry.reason,
        }
        self.fdr_client.record(GIVEUP_KIND, payload, durable=True)
        self._decide(
            build_upload_policy(self.config.max_per_tile_attempts - 1, 0.0, 0.0, name=UPLOAD_TILE),
            _build_context(f"Upload tile {entry.tile_id}", flight_id),
            key=str(entry.tile_id),
            attempt=attempts,
            error_type="Rejected" if entry.status is TileUploadStatus.REJECTED else "Damaged",
            problem=entry.reason or "no reason given",
        )
        if self.audit is not None:
            event = build_giveup_event(
                str(entry.tile_id), flight_id, attempts, entry.reason, clock=self.clock
            )
            self.audit.emit(event)
        self.tile_metadata_store.update_voting_status(entry.tile_id, VotingStatus.UPLOAD_GIVEUP)
        self.logger.error(
            "tile %s is given up after %d attempts: %s",
            entry.tile_id,
            attempts,
            entry.reason or "no reason given",
            extra={"kind": "c11.upload.giveup", "flight_id": flight_id, **payload},
        )

    def _has_more_to_send(self, request: UploadRequest, report: UploadBatchReport) -> bool:
        """Return whether another pass could send a pending tile; unreadable tiles do not count."""
        unreadable = {
            entry.tile_id
            for entry in report.per_tile_status.failures
            if entry.status is TileUploadStatus.UNREADABLE
        }
        pending = self.tile_metadata_store.pending_uploads(request.flight_id)
        return any(tile.tile_id not in unreadable for tile in pending)

    def _decide_on_retry(
        self, request: UploadRequest, retries_used: int, rejected: int
    ) -> RetryAt | GiveUp:
        """Return the retry decision for this call: another pass after a delay, or give up."""
        return self._decide(
            self._policy,
            _flight_context(request),
            key=request.flight_id,
            attempt=retries_used + 1,
            problem="1 tile was rejected" if rejected == 1 else f"{rejected} tiles were rejected",
        )

    def _audit_success(self, request: UploadRequest, *, attempts: int, waited_s: float) -> None:
        """Audit a success that took more than one pass."""
        if self.audit is not None:
            context = _flight_context(request)
            self.audit.emit(
                context.build_success_event(
                    attempts=attempts, waited_s=waited_s, policy=self._policy, clock=self.clock
                )
            )

    def _decide(
        self,
        policy: RetryPolicy,
        context: CallContext,
        *,
        key: str,
        attempt: int,
        problem: str,
        error_type: str = "Rejected",
    ) -> RetryAt | GiveUp:
        failure = Failure(key=key, attempt=attempt, error=Retryable())
        decision = decide(policy, failure)
        failed = FailedAttempt(
            failure=failure, decision=decision, error_type=error_type, error_message=problem
        )
        event = context.build_attempt_event(failed, policy, self.clock)
        if self.audit is not None:
            self.audit.emit(event)
        report_retry(event, self.progress, self.logger)
        return decision

    @property
    def _policy(self) -> RetryPolicy:
        config = self.config
        return build_upload_policy(
            config.max_in_call_retries, config.backoff_base_s, config.backoff_cap_s
        )

    def _log_start(self, request: UploadRequest) -> None:
        config = self.config
        self.logger.info(
            "upload of flight %s: up to %d retries, %d attempts a tile",
            request.flight_id,
            config.max_in_call_retries,
            config.max_per_tile_attempts,
            extra={
                "kind": "c11.upload.session.start",
                "flight_id": request.flight_id,
                "max_in_call_retries": config.max_in_call_retries,
                "max_per_tile_attempts": config.max_per_tile_attempts,
                "backoff_base_s": config.backoff_base_s,
                "backoff_cap_s": config.backoff_cap_s,
            },
        )

    def _log_retry(
        self, request: UploadRequest, attempt_number: int, sleep_s: float, remaining: int
    ) -> None:
        self.logger.info(
            "upload of flight %s: retry %d in %.1f s, %d tiles are left",
            request.flight_id,
            attempt_number,
            sleep_s,
            remaining,
            extra={
                "kind": "c11.upload.retry",
                "flight_id": request.flight_id,
                "attempt_number": attempt_number,
                "sleep_s": sleep_s,
                "remaining_pending_count": remaining,
            },
        )


def _flight_context(request: UploadRequest) -> CallContext:
    return _build_context(f"Upload flight {request.flight_id}", request.flight_id)


def _build_context(operation: str, flight_id: str) -> CallContext:
    return CallContext(
        category=RetryCategory.API_VALIDATION.value, operation=operation, correlation_id=flight_id
    )
