"""The use cases, and the ports they need."""

from tileferry.application.acquisition import PartitionAcquisition, RawDownloads
from tileferry.application.audit import AuditTrail
from tileferry.application.cache_budget import CacheBudget
from tileferry.application.download import AreaDownload
from tileferry.application.download_run import DownloadSettings
from tileferry.application.group_commit import GroupCommit, GroupLimits
from tileferry.application.idempotency import IdempotencyManager
from tileferry.application.idempotent_call import StoredResult, WhenBusy
from tileferry.application.ingest import CaptureIngest, IngestReport
from tileferry.application.json_codec import JsonCodec
from tileferry.application.retry_manager import RetryManager
from tileferry.application.retrying import call_with_retry, call_with_retry_async
from tileferry.application.upload import FlightUpload, UploadSettings
from tileferry.application.upload_retry import C11RetryConfig, IdempotentRetryTileUploader

__all__ = [
    "AreaDownload",
    "AuditTrail",
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
    "RawDownloads",
    "RetryManager",
    "StoredResult",
    "UploadSettings",
    "WhenBusy",
    "call_with_retry",
    "call_with_retry_async",
]
