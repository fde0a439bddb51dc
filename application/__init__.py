"""The use cases, and the ports they need."""

from tileferry.application.audit import AuditTrail
from tileferry.application.cache.cache_budget import CacheBudget
from tileferry.application.cache.group_commit import GroupCommit, GroupLimits
from tileferry.application.control.acquisition import PartitionAcquisition, RawDownloads
from tileferry.application.retries.idempotency import IdempotencyManager
from tileferry.application.retries.idempotent_call import StoredResult, WhenBusy
from tileferry.application.retries.json_codec import JsonCodec
from tileferry.application.retries.retry_manager import RetryManager
from tileferry.application.retries.retrying import call_with_retry, call_with_retry_async
from tileferry.application.transfers.download import AreaDownload
from tileferry.application.transfers.download_run import DownloadSettings
from tileferry.application.transfers.ingest import CaptureIngest, IngestReport
from tileferry.application.transfers.upload import FlightUpload, UploadSettings
from tileferry.application.transfers.upload_retry import C11RetryConfig, IdempotentRetryTileUploader

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
