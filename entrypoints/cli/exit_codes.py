"""Exit codes, and the table that maps errors to them."""

from enum import IntEnum

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # only a failure needs them
    from tileferry.domain.errors import (
        AlreadyThereError,
        ArchiveError,
        BackupError,
        CacheBudgetExceededError,
        CacheLockError,
        ConfirmationNeededError,
        DatabaseRefusedError,
        FarAreaError,
        FlightStateNotOnGroundError,
        ForeignCacheError,
        IllegalTransitionError,
        IncompleteWorkError,
        InvalidStateError,
        InvalidValueError,
        LeaseLostError,
        MisuseError,
        NoRawPartitionError,
        NotFoundError,
        NothingToResumeError,
        NotPermittedError,
        PlanDriftedError,
        ProtectedFlightError,
        RateLimitedError,
        SatelliteProviderError,
        TileManagerError,
        UndatedImageryError,
        WorkInProgressError,
    )


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    DONE = 0
    USAGE = 2
    PARTIAL = 3
    REFUSED = 4
    PROVIDER_FAILED = 5
    AUTHENTICATION = 6
    FATAL = 7
    INTERRUPTED = 130


_CODES: tuple[tuple[type[TileManagerError], ExitCode], ...] = (
    (InvalidValueError, ExitCode.USAGE),
    (NotFoundError, ExitCode.USAGE),
    (InvalidStateError, ExitCode.USAGE),
    (MisuseError, ExitCode.USAGE),
    (WorkInProgressError, ExitCode.USAGE),
    (AlreadyThereError, ExitCode.REFUSED),
    (ArchiveError, ExitCode.REFUSED),
    (BackupError, ExitCode.REFUSED),
    (CacheLockError, ExitCode.REFUSED),
    (CacheBudgetExceededError, ExitCode.REFUSED),
    (DatabaseRefusedError, ExitCode.REFUSED),
    (FarAreaError, ExitCode.REFUSED),
    (FlightStateNotOnGroundError, ExitCode.REFUSED),
    (ForeignCacheError, ExitCode.REFUSED),
    (IllegalTransitionError, ExitCode.REFUSED),
    (IncompleteWorkError, ExitCode.PARTIAL),
    (LeaseLostError, ExitCode.REFUSED),
    (ProtectedFlightError, ExitCode.REFUSED),
    (PlanDriftedError, ExitCode.REFUSED),
    (NothingToResumeError, ExitCode.REFUSED),
    (ConfirmationNeededError, ExitCode.REFUSED),
    (NoRawPartitionError, ExitCode.REFUSED),
    (UndatedImageryError, ExitCode.REFUSED),
    (NotPermittedError, ExitCode.REFUSED),
    (SatelliteProviderError, ExitCode.PROVIDER_FAILED),
    (RateLimitedError, ExitCode.PROVIDER_FAILED),
)


def get_exit_code(error: TileManagerError) -> ExitCode:
    """Return the exit code of a command that failed with ``error``."""
    fault = error.fault if isinstance(error, SatelliteProviderError) else None
    if fault is not None and fault.is_authentication:
        return ExitCode.AUTHENTICATION
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.FATAL
