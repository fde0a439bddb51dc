"""The use cases and their ports."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.application.audit import AuditTrail
    from tileferry.application.audit_delivery import BufferedSink
    from tileferry.application.cache.budget import CacheBudget
    from tileferry.application.cache.group_commit import GroupCommit, GroupLimits
    from tileferry.application.control.acquisition import PartitionAcquisition, RawDownloaderFactory
    from tileferry.application.download.area_download import AreaDownload
    from tileferry.application.download.settings import DownloadSettings
    from tileferry.application.ingest import CaptureIngest, IngestReport
    from tileferry.application.retries.driver import call_with_retry, call_with_retry_async
    from tileferry.application.retries.idempotency import IdempotencyManager
    from tileferry.application.retries.idempotent_call import StoredResult, WhenBusy
    from tileferry.application.retries.json_codec import JsonCodec
    from tileferry.application.retries.manager import RetryManager
    from tileferry.application.upload.batch_signing import UploadSettings
    from tileferry.application.upload.flight_upload import FlightUpload
    from tileferry.application.upload.upload_retry import (
        C11RetryConfig,
        IdempotentRetryTileUploader,
    )

__all__ = [
    "AreaDownload",
    "AuditTrail",
    "BufferedSink",
    "C11RetryConfig",
    "CacheBudget",
    "CaptureIngest",
    "DownloadSettings",
    "FlightUpload",
    "GroupCommit",
    "GroupLimits",
    "IdempotencyManager",
    "IdempotentRetryTileUploader",
    "IngestReport",
    "JsonCodec",
    "PartitionAcquisition",
    "RawDownloaderFactory",
    "RetryManager",
    "StoredResult",
    "UploadSettings",
    "WhenBusy",
    "call_with_retry",
    "call_with_retry_async",
]
