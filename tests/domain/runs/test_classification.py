"""Every error of the product has its class for the run queue."""

import errno
import math
import pickle
from collections.abc import Callable

import pytest

from tileferry.domain import errors
from tileferry.domain.errors import (
    AlertDeliveryError,
    AlreadyThereError,
    ArchiveError,
    AuditError,
    BackupError,
    CacheBudgetExceededError,
    CacheLockError,
    ConfirmationNeededError,
    DamagedTileError,
    DatabaseError,
    DatabaseRefusedError,
    FarAreaError,
    FlightStateNotOnGroundError,
    ForeignCacheError,
    FreshnessRejectionError,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    IllegalTransitionError,
    IncompleteWorkError,
    InvalidStateError,
    InvalidValueError,
    LeaseLostError,
    MessagingError,
    MisuseError,
    NoRawPartitionError,
    NotFoundError,
    NothingToResumeError,
    NotPermittedError,
    PeerError,
    PlanDriftedError,
    ProtectedFlightError,
    RateLimitedError,
    RecordedFailureError,
    ResolutionRejectionError,
    ResponseSchemaError,
    ResultNotStorableError,
    RetryError,
    SatelliteProviderError,
    StorageError,
    TileManagerError,
    TileNotFoundError,
    TileTooLargeError,
    UndatedImageryError,
    WorkInProgressError,
)
from tileferry.domain.retry import (
    Decision,
    ErrorClass,
    Final,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryLoop,
    RetryPolicy,
)
from tileferry.domain.runs import ERROR_CLASSES, classify_error, is_source_wide
from tileferry.domain.tiles import ProviderFault, classify_fault

EXPECTED: dict[type[TileManagerError], ErrorClass] = {
    AlreadyThereError: Final(),
    ArchiveError: Final(),
    BackupError: Final(),
    PeerError: Retryable(),
    AlertDeliveryError: Retryable(),
    AuditError: Retryable(),
    CacheBudgetExceededError: Final(),
    CacheLockError: RateLimited(retry_after_s=30),
    ConfirmationNeededError: Final(),
    DamagedTileError: Final(),
    DatabaseRefusedError: Retryable(),
    FarAreaError: Final(),
    FlightStateNotOnGroundError: RateLimited(retry_after_s=900.0),
    ForeignCacheError: Retryable(),
    FreshnessRejectionError: Final(),
    IdempotencyConflictError: Final(),
    IdempotencyInProgressError: Retryable(),
    IdempotencyLostError: Retryable(),
    IllegalTransitionError: Final(),
    InvalidStateError: Final(),
    InvalidValueError: Final(),
    MisuseError: Final(),
    NotFoundError: Final(),
    WorkInProgressError: Final(),
    IncompleteWorkError: Retryable(),
    LeaseLostError: Retryable(),
    MessagingError: Retryable(),
    NoRawPartitionError: Final(),
    UndatedImageryError: Final(),
    NotPermittedError: Final(),
    NothingToResumeError: Final(),
    PlanDriftedError: Final(),
    ProtectedFlightError: Final(),
    RecordedFailureError: Final(),
    ResolutionRejectionError: Final(),
    ResultNotStorableError: Final(),
    StorageError: Retryable(),
    TileManagerError: Retryable(),
    TileNotFoundError: Retryable(),
    TileTooLargeError: Final(),
}
BY_THEIR_DATA = {
    DatabaseError,
    RateLimitedError,
    ResponseSchemaError,
    RetryError,
    SatelliteProviderError,
}


def make_retry_error(cause: BaseException | None, *, reason: GiveUpReason) -> RetryError:
    error = RetryError(
        category="RETRY_API_REQUEST", operation="Get", attempts=3, elapsed_s=1.0, reason=reason
    )
    error.__cause__ = cause
    return error


def test_every_product_error_is_classified() -> None:
    family = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TileManagerError)
    }
    assert family <= ERROR_CLASSES.keys()
    assert family == EXPECTED.keys() | BY_THEIR_DATA


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.__name__)
def test_each_error_has_expected_class(kind: type[TileManagerError]) -> None:
    error = kind.__new__(kind)  # the class alone decides: no field is looked at
    assert classify_error(error) == EXPECTED[kind]


@pytest.mark.parametrize("fault", ProviderFault)
@pytest.mark.parametrize(
    "make",
    [SatelliteProviderError, lambda **fields: ResponseSchemaError(field="tiles", **fields)],
    ids=["plain", "schema"],
)
def test_provider_errors_are_classified_by_fault(
    fault: ProviderFault, make: Callable[..., SatelliteProviderError]
) -> None:
    error = make(reason="no", fault=fault, retry_after_s=7.0)
    assert classify_error(error) == classify_fault(fault, 7.0)


def test_common_provider_faults_have_expected_class() -> None:
    def classified(fault: ProviderFault | None) -> ErrorClass:
        return classify_error(SatelliteProviderError(reason="no", fault=fault))

    for fault in (ProviderFault.UNAUTHORIZED, ProviderFault.INSECURE, ProviderFault.SCHEMA):
        assert classified(fault) == Final()
    for fault in (ProviderFault.UNAVAILABLE, ProviderFault.TIMED_OUT, ProviderFault.UNREACHABLE):
        assert classified(fault) == Retryable()
    assert classified(ProviderFault.NOT_FOUND) == Final()
    assert classified(ProviderFault.RATE_LIMITED) == RateLimited()
    assert classified(None) == Final()


@pytest.mark.parametrize("hint_s", [None, 0.0, 30.0])
def test_spec4_rate_limit_keeps_retry_after_hint(hint_s: float | None) -> None:
    error = RateLimitedError(url="u", attempts=2, retry_after_s=hint_s)
    assert classify_error(error) == RateLimited(retry_after_s=hint_s)


@pytest.mark.parametrize("hint_s", [-1.0, math.nan, math.inf, -math.inf])
def test_invalid_retry_after_hint_is_ignored(hint_s: float) -> None:
    limited = RateLimitedError(url="u", attempts=2, retry_after_s=hint_s)
    refused = SatelliteProviderError(
        reason="no", fault=ProviderFault.RATE_LIMITED, retry_after_s=hint_s
    )
    assert classify_error(limited) == classify_error(refused) == RateLimited()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error"),
        PermissionError("no"),
        ConnectionResetError("gone"),
        TimeoutError(),
        MemoryError(),
        KeyError("x"),
        RuntimeError("what nobody foresaw"),
        ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_standard_library_errors_are_retryable(error: Exception) -> None:
    assert classify_error(error) == Retryable()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_interrupts_are_retryable_for_runs(error: BaseException) -> None:
    assert classify_error(error) == Retryable()


def test_locked_cache_and_absent_database_charge_neither_the_run_nor_its_source() -> None:
    locked = CacheLockError(path="l", problem="held", remedy="wait")
    away = DatabaseError(problem="gone", remedy="wait", is_unreachable=True)
    for error in (locked, away):
        assert classify_error(error) == RateLimited(retry_after_s=30)
        assert not is_source_wide(error)
    assert classify_error(DatabaseError(problem="full", remedy="free space")) == Retryable()


def test_most_specific_class_decides() -> None:
    class PrivateLockError(CacheLockError):
        pass

    class TooLongError(InvalidValueError, MemoryError):
        pass

    locked = PrivateLockError(path="l", problem="held", remedy="wait")
    assert classify_error(locked) == classify_error(CacheLockError.__new__(CacheLockError))
    assert classify_error(TooLongError.__new__(TooLongError)) == Final()


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (SatelliteProviderError(reason="no", fault=ProviderFault.UNAUTHORIZED), Final()),
        (SatelliteProviderError(reason="no", fault=ProviderFault.UNAVAILABLE), Retryable()),
        (RateLimitedError(url="u", attempts=2, retry_after_s=9.0), RateLimited(retry_after_s=9.0)),
        (CacheBudgetExceededError(requested_bytes=2, available_bytes=1), Final()),
        (None, Retryable()),
    ],
)
def test_retry_error_is_classified_by_its_cause(
    cause: BaseException | None, expected: ErrorClass
) -> None:
    error = make_retry_error(cause, reason=GiveUpReason.ATTEMPTS_EXHAUSTED)
    assert classify_error(error) == expected
    assert classify_error(make_retry_error(error, reason=GiveUpReason.BUDGET_EXHAUSTED)) == expected


def test_unpickled_retry_error_is_classified_by_its_history() -> None:
    loop = RetryLoop(
        policy=RetryPolicy(max_attempts=9, max_rate_limited=0),
        key="k",
        started_s=0.0,
        classifier=lambda _: RateLimited(retry_after_s=5.0),
    )
    decision: Decision = loop.record_failure(OSError("x"), now_s=1.0)
    assert isinstance(decision, GiveUp)
    with pytest.raises(RetryError) as raised:
        loop.get_delay(OSError("x"))
    error = raised.value
    assert classify_error(error) == Retryable()
    sent = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert sent.__cause__ is None
    assert classify_error(sent) == RateLimited(retry_after_s=5.0)


def test_cyclic_causes_terminate() -> None:
    error = make_retry_error(None, reason=GiveUpReason.ATTEMPTS_EXHAUSTED)
    error.__cause__ = make_retry_error(error, reason=GiveUpReason.ATTEMPTS_EXHAUSTED)
    assert classify_error(error) == Retryable()
