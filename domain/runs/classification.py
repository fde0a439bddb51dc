"""What an error means for the run that met it: one table, for every error of the product.

Final is what only a human can change: the request, a key, a limit, a disk's content. Everything
else may pass by itself, or be mended while the run waits; the run's policy bounds how often that is
hoped for.
"""

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from tileferry.domain.errors import (
    AlreadyThereError,
    ArchiveError,
    AuditError,
    CacheBudgetExceededError,
    CacheLockError,
    ConfirmationNeededError,
    DamagedTileError,
    DatabaseError,
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
    PlanDriftedError,
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
    WorkInProgressError,
)
from tileferry.domain.retry import ErrorClass, Final, RateLimited, Retryable
from tileferry.domain.text import SHOWN_CHARS_MAX, printable
from tileferry.domain.tiles.provider_faults import classify_fault, classify_provider_error

EXPLANATION_CHARS_MAX = SHOWN_CHARS_MAX
LANDING_CHECK_INTERVAL_S = 900.0
"""How long an upload waits before it looks again whether its aircraft has landed."""
_CAUSES_MAX = 10
_SECRETS = (
    (re.compile(r"://[^\s/@]+@"), "://***@"),
    (
        re.compile(r"(?i)(password|passwd|secret|token|api[_-]?key)(=|['\"]\s*:\s*)\S+"),
        r"\1\2***",
    ),
)
Rule: TypeAlias = ErrorClass | Callable[[Any], ErrorClass]


def classify_error(error: BaseException) -> ErrorClass:
    """Say what an error means for its run: the most specific class in the table decides."""
    rule = next(ERROR_CLASSES[kind] for kind in type(error).__mro__ if kind in ERROR_CLASSES)
    return rule(error) if callable(rule) else rule


def is_source_wide(error: BaseException) -> bool:
    """Tell whether a wait is what the source asks of all its runs, and not one flight's alone."""
    return not isinstance(error, FlightStateNotOnGroundError)


def explain_error(error: BaseException) -> str:
    """Return an error on one safe line that is stored as it is: escaped, short, without secrets.

    Errors of the product speak for themselves; of others the type is named, for many say nothing.
    """
    said = _redact_message(error)
    if not isinstance(error, TileManagerError) or not said:
        said = f"{type(error).__name__}: {said}".removesuffix(": ")
    line = printable(said, limit=EXPLANATION_CHARS_MAX)
    if len(line) <= EXPLANATION_CHARS_MAX:
        return line
    return f"{line[: EXPLANATION_CHARS_MAX - 1]}…"


def _redact_message(error: BaseException) -> str:
    """Return the message of an error that may be anybody's, with what looks like a secret hidden.

    Hidden before it is cut: what shows that something is a secret may stand behind it.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # telling of a failure must not fail
        return ""
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text


def _classify_provider_error(error: SatelliteProviderError) -> ErrorClass:
    if error.fault is None:
        return classify_provider_error(error)
    return classify_fault(error.fault, _validate_hint(error.retry_after_s))


def _classify_rate_limit(error: RateLimitedError) -> ErrorClass:
    return RateLimited(retry_after_s=_validate_hint(error.retry_after_s))


def _validate_hint(seconds: float | None) -> float | None:
    """Return a wait that can be kept; any other is as good as none."""
    return seconds if seconds is not None and 0 <= seconds < math.inf else None


def _classify_retry_error(error: RetryError) -> ErrorClass:
    """Look at what was tried in vain. On its way between processes an error loses its cause."""
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
        # The provider: whether another try helps is said once, by its faults.
        SatelliteProviderError: _classify_provider_error,
        ResponseSchemaError: _classify_provider_error,
        RateLimitedError: _classify_rate_limit,
        RetryError: _classify_retry_error,
        # What was asked for is wrong, or not allowed, and will be the next time.
        AlreadyThereError: Final(),
        ArchiveError: Final(),
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
        NoRawPartitionError: Final(),
        PlanDriftedError: Final(),
        # Room is made by a human, who can ask for less, unpin a flight or raise the budget.
        CacheBudgetExceededError: Final(),
        # No retry brings the bytes back.
        DamagedTileError: Final(),
        # What an idempotency key stands for is settled.
        IdempotencyConflictError: Final(),
        RecordedFailureError: Final(),
        ResultNotStorableError: Final(),
        # Somebody else is at it, or was: look again later.
        CacheLockError: Retryable(),
        IdempotencyInProgressError: Retryable(),
        IdempotencyLostError: Retryable(),
        IncompleteWorkError: Retryable(),
        LeaseLostError: Retryable(),
        # The worker's fault: one at the right cache can do it.
        ForeignCacheError: Retryable(),
        # A tile that was evicted meanwhile is not in the list that the next try makes.
        TileNotFoundError: Retryable(),
        # Nothing failed: a flight takes its hours. It is looked at again without a charge, as often
        # as a run may be told to wait.
        FlightStateNotOnGroundError: RateLimited(retry_after_s=LANDING_CHECK_INTERVAL_S),
        # Servers come back, and disks are mended.
        DatabaseError: Retryable(),
        MessagingError: Retryable(),
        AuditError: Retryable(),
        StorageError: Retryable(),
        OSError: Retryable(),  # all of them: full disks, lost connections, timeouts, wrong rights
        MemoryError: Retryable(),
        # What nobody foresaw. Giving up work for it would be worse than some tries in vain.
        TileManagerError: Retryable(),
        Exception: Retryable(),
        # An interrupt is the worker's, and no fault of its run.
        BaseException: Retryable(),
    }
)
"""Each error's class, or how it is found; the most specific entry counts."""
