"""All errors that are raised on purpose; each carries its data.

A message says what failed, names the value and the reason, and ends with what to do. Values from
outside are escaped. An error never holds a secret.
"""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.domain.errors.base import (
        InvalidStateError,
        InvalidValueError,
        MisuseError,
        NotFoundError,
        TileManagerError,
    )
    from tileferry.domain.errors.cache import (
        ArchiveError,
        BackupError,
        CacheBudgetExceededError,
        CacheLockError,
        DamagedTileError,
        FarAreaError,
        FlightStateNotOnGroundError,
        ForeignCacheError,
        NothingToResumeError,
        PeerError,
        ProtectedFlightError,
        TileNotFoundError,
        TileTooLargeError,
    )
    from tileferry.domain.errors.calls import (
        IdempotencyConflictError,
        IdempotencyInProgressError,
        IdempotencyLostError,
        RecordedFailureError,
        ResultNotStorableError,
        RetryError,
    )
    from tileferry.domain.errors.control import (
        ConfirmationNeededError,
        IllegalTransitionError,
        IncompleteWorkError,
        LeaseLostError,
        NoRawPartitionError,
        PlanDriftedError,
        UndatedImageryError,
        WorkInProgressError,
    )
    from tileferry.domain.errors.provider import (
        FreshnessRejectionError,
        NotPermittedError,
        RateLimitedError,
        ResolutionRejectionError,
        ResponseSchemaError,
        SatelliteProviderError,
    )
    from tileferry.domain.errors.remedies import Remedy
    from tileferry.domain.errors.systems import (
        AlertDeliveryError,
        AlreadyThereError,
        AuditError,
        DatabaseError,
        DatabaseRefusedError,
        MessagingError,
        StorageError,
    )

__all__ = [
    "AlertDeliveryError",
    "AlreadyThereError",
    "ArchiveError",
    "AuditError",
    "BackupError",
    "CacheBudgetExceededError",
    "CacheLockError",
    "ConfirmationNeededError",
    "DamagedTileError",
    "DatabaseError",
    "DatabaseRefusedError",
    "FarAreaError",
    "FlightStateNotOnGroundError",
    "ForeignCacheError",
    "FreshnessRejectionError",
    "IdempotencyConflictError",
    "IdempotencyInProgressError",
    "IdempotencyLostError",
    "IllegalTransitionError",
    "IncompleteWorkError",
    "InvalidStateError",
    "InvalidValueError",
    "LeaseLostError",
    "MessagingError",
    "MisuseError",
    "NoRawPartitionError",
    "NotFoundError",
    "NotPermittedError",
    "NothingToResumeError",
    "PeerError",
    "PlanDriftedError",
    "ProtectedFlightError",
    "RateLimitedError",
    "RecordedFailureError",
    "Remedy",
    "ResolutionRejectionError",
    "ResponseSchemaError",
    "ResultNotStorableError",
    "RetryError",
    "SatelliteProviderError",
    "StorageError",
    "TileManagerError",
    "TileNotFoundError",
    "TileTooLargeError",
    "UndatedImageryError",
    "WorkInProgressError",
]
