"""Factories of the parts that the container assembles, configured by the settings."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tileferry.domain.errors import CacheLockError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints import messaging, tile_source
from tileferry.entrypoints.config import Config, SinkName, StoreName

if TYPE_CHECKING:
    import httpx

with import_on_call(globals()):
    from tileferry.adapters.filesystem import (
        FileCacheMark,
        FileJournalStore,
        FlightRecordFile,
        SegmentTileStore,
    )
    from tileferry.adapters.http import (
        CurlTransport,
        HttpTileUploader,
        ProviderAddress,
        ResponseLimits,
        new_client,
    )
    from tileferry.adapters.postgres import (
        Database,
        PostgresAuditLog,
        PostgresBlobIndex,
        PostgresCacheLedger,
        PostgresIdempotencyStore,
    )
    from tileferry.adapters.system import (
        SystemDisk,
        ThreadFetchRunner,
        describe_location,
    )
    from tileferry.application import (
        C11RetryConfig,
        CacheBudget,
        DownloadSettings,
        IdempotentRetryTileUploader,
        UploadSettings,
    )
    from tileferry.application.audit_reader import AuditReader, AuditVerification
    from tileferry.application.cache.verification import CacheVerification, VerificationReport
    from tileferry.application.ports import Clock, IdempotencyStore, TileUploader
    from tileferry.application.ports.idempotency import ExpiringRecords
    from tileferry.application.ports.inventory import TileInventory
    from tileferry.application.ports.progress import ProgressListener
    from tileferry.application.ports.uploads import FlightRecords
    from tileferry.domain.audit import ChainHead
    from tileferry.domain.retry import Pace, RetryCategory, RetryPolicy, limit_to_run
    from tileferry.domain.tiles import (
        ResolutionGate,
        VotingStatus,
        compute_default_budget_bytes,
        compute_default_reserve_bytes,
    )
    from tileferry.entrypoints.config.policies import build_download_policy
    from tileferry.entrypoints.config.retry_overrides import build_category_policies
    from tileferry.entrypoints.reading import ReadingParts


def open_reading(
    config: Config, clock: Clock, progress: ProgressListener
) -> Iterator[ReadingParts]:
    """Open the database, when it is used first."""
    parts = ReadingParts(config, clock, progress)
    yield parts
    parts.close()


def open_tile_store(root: Path, index: PostgresBlobIndex) -> Iterator[SegmentTileStore]:
    """Open the segments below a cache root."""
    with SegmentTileStore(root=root, index=index) as store:
        yield store


def build_cache_budget(
    config: Config,
    ledger: PostgresCacheLedger,
    disk: SystemDisk,
    store: SegmentTileStore,
    journals: FileJournalStore,
    *,
    mark: FileCacheMark,
) -> CacheBudget:
    """Return the cache budget with its configured limits."""

    def find_reservation_id() -> str:
        # A cache that was moved or mounted elsewhere after a crash releases its own reservation.
        return mark.read() or describe_location(config.c11.cache_root)

    def reclaim() -> None:
        store.forget_locations()
        try:
            store.compact()
        except CacheLockError as error:  # the next eviction frees the space
            logging.getLogger("tileferry.c11").warning(
                "evicted tiles keep their space: %s",
                error.problem,
                extra={"kind": "c11.cache.not_compacted"},
            )

    return CacheBudget(
        ledger=ledger,
        disk=disk,
        reclaim=reclaim,
        before_eviction=journals.discard_complete,
        # Only the lock holder can reserve space, so an existing reservation with this id is stale.
        find_reservation_id=find_reservation_id,
        budget_bytes=get_budget_bytes(config, disk),
        free_space_reserve_bytes=get_reserve_bytes(config, disk),
    )


def verify_cache(verification: Callable[[], CacheVerification]) -> VerificationReport:
    """Check every byte of the cache, which may not have existed before this call."""
    return verification().verify()


def verify_audit(reader: Callable[[], AuditReader], noted: ChainHead) -> AuditVerification:
    """Check every entry of the audit log, and that it goes on from a head that was noted."""
    return reader().verify(noted)


def open_http_client(address: ProviderAddress) -> "Iterator[httpx.Client]":
    """Open an HTTP client for the provider."""
    with new_client(address) as client:
        yield client


def open_transport(address: ProviderAddress) -> Iterator[CurlTransport]:
    """Open the connections for tile requests."""
    lane = CurlTransport(address)
    yield lane
    lane.close()


def build_download_settings(config: Config, *, in_run: bool) -> DownloadSettings:
    """Return the retry policy and the quality gate of downloads."""
    c11, policy = config.c11, build_download_policy(config.c11)
    return DownloadSettings(
        policy=limit_to_run(policy) if in_run else policy,
        gate=ResolutionGate(
            min_m_per_px=config.min_resolution_m_per_px, max_m_per_px=c11.max_resolution_m_per_px
        ),
        absent_ttl=timedelta(days=c11.absent_ttl_days),
    )


def build_fetch_runner(config: Config) -> ThreadFetchRunner:
    """Return the thread that fetches tiles; the pace limits how many requests it sends."""
    return ThreadFetchRunner.for_requests(config.c11.max_concurrent_requests)


def build_pace(config: Config) -> Pace:
    """Return the full pace of requests."""
    return Pace(concurrency_max=config.c11.max_concurrent_requests)


def build_retry_config(config: Config) -> C11RetryConfig:
    """Return the limits of upload retries."""
    c11 = config.c11
    return C11RetryConfig(
        max_in_call_retries=c11.max_in_call_retries,
        max_per_tile_attempts=c11.max_per_tile_attempts,
        backoff_base_s=c11.backoff_base_s,
        backoff_cap_s=c11.backoff_cap_s,
    )


def build_upload_settings(config: Config) -> UploadSettings:
    """Return the batch limits of uploads, and which part counts rejections."""
    c11 = config.c11
    return UploadSettings(
        batch_tiles_max=c11.upload_batch_tiles,
        batch_bytes_max=c11.upload_batch_bytes,
        attempts_max=None if c11.disable_retry_decorator else c11.max_per_tile_attempts,
    )


def assemble_tile_uploader(
    config: Config,
    *,
    plain: Callable[..., HttpTileUploader],
    retrying: Callable[..., IdempotentRetryTileUploader],
    logger: logging.Logger,
    flight_records: FlightRecords | None = None,
    progress: ProgressListener,
    tiles: TileInventory,
) -> TileUploader:
    """Return an uploader that retries rejected tiles, unless that is disabled.

    Without ``flight_records`` the configured flight record says whether the aircraft has landed.
    """
    tile_source.check_accepts_uploads(config)
    records = flight_records or FlightRecordFile(path=config.c11.flight_record_file)
    bare = plain(flight_records=records, progress=progress)
    if config.c11.disable_retry_decorator:
        logger.info(
            "uploads make one pass: c11.disable_retry_decorator is set",
            extra={"kind": "c11.upload.retry_disabled"},
        )
        return bare
    return retrying(
        inner=bare,
        on_counted=bare.close_counted,
        count_giveups=lambda flight: tiles.count_captured(flight).get(
            VotingStatus.UPLOAD_GIVEUP, 0
        ),
    )


def build_response_limits(config: Config) -> ResponseLimits:
    """Return the size and time limits of responses."""
    c11 = config.c11
    return ResponseLimits(tile_bytes_max=c11.max_tile_bytes, deadline_s=c11.response_deadline_s)


def open_background_executor() -> Iterator[ThreadPoolExecutor]:
    """Start the single thread that commits in the background."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tileferry-commit") as executor:
        yield executor


def build_idempotency_store(
    config: Config,
    database: Callable[[], Database],
    audit_log: Callable[[], PostgresAuditLog],
    nats_store: Callable[[], IdempotencyStore],
) -> IdempotencyStore:
    """Return the configured store.

    In Postgres, it commits outcomes with their events when the audit log is there, too.
    """
    if config.idempotency.store is StoreName.NATS:
        return nats_store()
    chained = SinkName.POSTGRES in config.audit.sinks
    return PostgresIdempotencyStore(
        database=database(), audit_sink=audit_log() if chained else None
    )


def build_key_expiry(config: Config, store: IdempotencyStore, clock: Clock) -> ExpiringRecords:
    """Return the records from which workers remove expired keys."""
    in_nats = config.idempotency.store is StoreName.NATS
    return messaging.HourlyExpiry(store, clock) if in_nats else store


def build_retry_policies(
    config: Config, *, in_run: bool = False
) -> dict[RetryCategory, RetryPolicy]:
    """Return the configured policy of each category."""
    found = dict(build_category_policies(config.retry))
    if in_run:
        found[RetryCategory.API_REQUEST] = limit_to_run(found[RetryCategory.API_REQUEST])
    return found


def get_budget_bytes(config: Config, disk: SystemDisk) -> int:
    """Return the maximum size of the cache."""
    limit = config.c6.budget_bytes
    return compute_default_budget_bytes(disk.total_bytes()) if limit is None else limit


def get_reserve_bytes(config: Config, disk: SystemDisk) -> int:
    """Return how much of the disk must stay free."""
    reserve = config.c6.free_space_reserve_bytes
    return compute_default_reserve_bytes(disk.total_bytes()) if reserve is None else reserve
