"""The error class of every exception a run can meet: retryable, rate-limited or final.

Final errors need a human: the request, a key, a limit or the contents of a disk must change. All
other errors may disappear on their own or be fixed while the run waits; the run's retry policy
limits the number of retries.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

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
from tileferry.domain.retry import ErrorClass, Final, RateLimited, Retryable
from tileferry.domain.text import SHOWN_CHARS_MAX, printable
from tileferry.domain.tiles.provider_faults import classify_fault, classify_provider_error

EXPLANATION_CHARS_MAX = SHOWN_CHARS_MAX
LANDING_CHECK_INTERVAL_S = 900.0
"""How long an upload waits before it checks again whether the aircraft has landed."""
RESOURCE_CHECK_INTERVAL_S = 30.0
"""How long a run waits for a cache that is locked, or for a database that is away."""
_CAUSES_MAX = 10
Rule: TypeAlias = ErrorClass | Callable[[Any], ErrorClass]


def classify_error(error: BaseException) -> ErrorClass:
    """Return the error class of an exception. The most specific entry of the table applies."""
    rule = next(ERROR_CLASSES[kind] for kind in type(error).__mro__ if kind in ERROR_CLASSES)
    return rule(error) if callable(rule) else rule


def is_source_wide(error: BaseException) -> bool:
    """Return whether a wait applies to all runs of the source: the source asked for it."""
    return not isinstance(error, FlightStateNotOnGroundError | CacheLockError | DatabaseError)


def explain_error(error: BaseException) -> str:
    """Return the error as one short line that is safe to store: escaped, without secrets.

    Errors of other libraries are prefixed with their type, because many have no useful message.
    """
    said = _get_message(error)
    if not isinstance(error, TileManagerError) or not said:
        said = f"{type(error).__name__}: {said}".removesuffix(": ")
    line = printable(said, limit=EXPLANATION_CHARS_MAX)
    if len(line) <= EXPLANATION_CHARS_MAX:
        return line
    return f"{line[: EXPLANATION_CHARS_MAX - 1]}…"


def _get_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # reporting a failure must not fail
        return ""


def _classify_provider_error(error: SatelliteProviderError) -> ErrorClass:
    if error.fault is None:
        return classify_provider_error(error)
    return classify_fault(error.fault, _validate_hint(error.retry_after_s))


def _classify_rate_limit(error: RateLimitedError) -> ErrorClass:
    return RateLimited(retry_after_s=_validate_hint(error.retry_after_s))


def _validate_hint(seconds: float | None) -> float | None:
    """Return the hint if it is a usable delay; ``None`` otherwise."""
    return seconds if seconds is not None and 0 <= seconds < math.inf else None


def _classify_database_error(error: DatabaseError) -> ErrorClass:
    """Charge no attempt for a server that is away."""
    if error.is_unreachable:
        return RateLimited(retry_after_s=RESOURCE_CHECK_INTERVAL_S)
    return Retryable()


def _classify_retry_error(error: RetryError) -> ErrorClass:
    """Classify the underlying error. A ``RetryError`` from another process has lost its cause."""
    cause: BaseException = error
    for _ in range(_CAUSES_MAX):
        if not isinstance(cause, RetryError):
            return classify_error(cause)
        if cause.__cause__ is None:
            return cause.history[-1].failure.error if cause.history else Retryable()
        cause = cause.__cause__
    return Retryable()


ERROR_CLASSES: Mapping[type[BaseException], Rule] = MappingProxyType(
    {
        # The provider's faults decide whether a retry helps; see ``classify_fault``.
        SatelliteProviderError: _classify_provider_error,
        ResponseSchemaError: _classify_provider_error,
        RateLimitedError: _classify_rate_limit,
        RetryError: _classify_retry_error,
        # The request is invalid or not permitted, and a retry would be the same.
        AlreadyThereError: Final(),
        ArchiveError: Final(),
        BackupError: Final(),
        PeerError: Retryable(),
        InvalidValueError: Final(),
        InvalidStateError: Final(),
        MisuseError: Final(),
        NotFoundError: Final(),
        WorkInProgressError: Final(),
        IllegalTransitionError: Final(),
        NotPermittedError: Final(),
        ResolutionRejectionError: Final(),
        FreshnessRejectionError: Final(),
        TileTooLargeError: Final(),
        NothingToResumeError: Final(),
        ConfirmationNeededError: Final(),
        FarAreaError: Final(),
        ProtectedFlightError: Final(),
        NoRawPartitionError: Final(),
        UndatedImageryError: Final(),
        PlanDriftedError: Final(),
        # An operator must make room: request less, unpin a flight or raise the budget.
        CacheBudgetExceededError: Final(),
        # A retry cannot restore the bytes.
        DamagedTileError: Final(),
        # The work of an idempotency key cannot change.
        IdempotencyConflictError: Final(),
        RecordedFailureError: Final(),
        ResultNotStorableError: Final(),
        # Not a failure of the run: the cache is in use. See also ``DatabaseError``.
        CacheLockError: RateLimited(retry_after_s=RESOURCE_CHECK_INTERVAL_S),
        # Another process holds, or held, the resource.
        IdempotencyInProgressError: Retryable(),
        IdempotencyLostError: Retryable(),
        IncompleteWorkError: Retryable(),
        LeaseLostError: Retryable(),
        # This worker uses the wrong cache; a worker with the right cache can do the work.
        ForeignCacheError: Retryable(),
        # The tile was evicted in the meantime. The next attempt lists the tiles again, without it.
        TileNotFoundError: Retryable(),
        # Not a failure: the flight is still in progress. The check is repeated without charging a
        # retry, up to the policy's limit of rate-limit waits.
        FlightStateNotOnGroundError: RateLimited(retry_after_s=LANDING_CHECK_INTERVAL_S),
        # Servers restart, and disks are repaired.
        DatabaseError: _classify_database_error,
        DatabaseRefusedError: Retryable(),
        MessagingError: Retryable(),
        AlertDeliveryError: Retryable(),
        AuditError: Retryable(),
        StorageError: Retryable(),
        OSError: Retryable(),  # full disks, lost connections, timeouts, missing permissions
        MemoryError: Retryable(),
        # Unexpected errors. Giving up the work would be worse than a few useless retries.
        TileManagerError: Retryable(),
        Exception: Retryable(),
        # An interrupt stops the worker; it is not the run's fault.
        BaseException: Retryable(),
    }
)
"""The error class of each exception type, or a function that returns it."""
