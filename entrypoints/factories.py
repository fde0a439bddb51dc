"""Factories of the parts that the container assembles, configured by the settings."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from tileferry.domain.errors import CacheLockError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints import messaging, tile_source
from tileferry.entrypoints.config import Config, SinkName, StoreName

if TYPE_CHECKING:
    import httpx

with import_on_call(globals()):
    from tileferry.adapters.filesystem import (
        FileAuditOutbox,
        FileCacheMark,
        FileFdrClient,
        FileJournalStore,
        FlightRecordFile,
        JsonLinesAuditSink,
        SegmentTileStore,
    )
    from tileferry.adapters.http import (
        CurlTransport,
        HttpTileUploader,
        ProviderAddress,
        ResponseLimits,
        new_client,
    )
    from tileferry.adapters.http.webhook import AlertWebhook, check_webhook_url
    from tileferry.adapters.postgres import (
        Database,
        PostgresAuditLog,
        PostgresBlobIndex,
        PostgresCacheLedger,
        PostgresIdempotencyStore,
        PostgresRunQueue,
        PostgresWorkStore,
    )
    from tileferry.adapters.system import (
        SystemClock,
        SystemDisk,
        ThreadFetchRunner,
        describe_location,
        new_id,
    )
    from tileferry.adapters.telemetry.log_audit import LogAuditSink
    from tileferry.application import (
        AuditTrail,
        C11RetryConfig,
        CacheBudget,
        DownloadSettings,
        IdempotentRetryTileUploader,
        UploadSettings,
    )
    from tileferry.application.audit_delivery import BufferedSink
    from tileferry.application.audit_reader import AuditReader, AuditVerification
    from tileferry.application.cache.verification import CacheVerification, VerificationReport
    from tileferry.application.control.policies import WorkPolicies
    from tileferry.application.control.worker import WorkerSettings
    from tileferry.application.ports import AuditSink, Clock, IdempotencyStore, TileUploader
    from tileferry.application.ports.audit import AlertReceiver, AuditLog
    from tileferry.application.ports.idempotency import ExpiringRecords
    from tileferry.application.ports.inventory import TileInventory
    from tileferry.application.ports.progress import ProgressListener
    from tileferry.application.ports.uploads import FlightRecords
    from tileferry.domain.audit import AlertRule, ChainHead
    from tileferry.domain.partitions import TerminalityPolicy
    from tileferry.domain.partitions.imagery_dates import ImageryDates
    from tileferry.domain.partitions.validator import ValidationRules
    from tileferry.domain.retry import Pace, RetryBudget, RetryCategory, RetryPolicy, limit_to_run
    from tileferry.domain.tiles import (
        ResolutionGate,
        VotingStatus,
        compute_default_budget_bytes,
        compute_default_reserve_bytes,
    )
    from tileferry.entrypoints.config.loader import get_nats_url
    from tileferry.entrypoints.config.policies import (
        build_download_policy,
        build_partition_policy,
        build_run_policy,
        build_worker_quarantine_policy,
    )
    from tileferry.entrypoints.config.retry_overrides import (
        build_alert_thresholds,
        build_category_policies,
    )
    from tileferry.entrypoints.logs import get_structured_logger
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


def open_fdr(root: Path, clock: SystemClock) -> Iterator[FileFdrClient]:
    """Open the flight data recorder."""
    recorder = FileFdrClient(root=root, clock=clock)
    yield recorder
    recorder.close()


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


def open_local_sinks(
    config: Config, audit_log: Callable[[], AuditSink], clock: Clock
) -> Iterator[dict[SinkName, AuditSink]]:
    """Open the configured audit sinks, except NATS; an outbox keeps what they cannot take."""
    with ExitStack() as closing:
        makers: dict[SinkName, Callable[[], AuditSink]] = {
            SinkName.POSTGRES: audit_log,
            SinkName.JSONL: partial(_open_jsonl_sink, config.audit.jsonl_path, closing),
        }
        sinks: dict[SinkName, AuditSink] = {
            name: buffer_sink(config, name, makers[name](), clock)
            for name in config.audit.sinks
            if name in makers
        }
        if SinkName.LOG in config.audit.sinks:
            sinks[SinkName.LOG] = LogAuditSink(logger=get_structured_logger("tileferry.audit"))
        yield sinks


def buffer_sink(config: Config, name: SinkName, sink: AuditSink, clock: Clock) -> BufferedSink:
    """Return a sink with an outbox below the cache's root, one for each destination.

    So events never reach another database or server that is configured for the same cache later.
    """
    digest = sha256(describe_destination(config, name).encode()).hexdigest()[:8]
    return BufferedSink(
        sink=sink,
        outbox=FileAuditOutbox(
            root=config.c11.cache_root,
            name=f"{sink.name}-{digest}",
            sink=sink.name,
            bytes_max=config.audit.outbox_bytes,
        ),
        clock=clock,
        new_id=new_id,
        logger=logging.getLogger("tileferry.audit"),
    )


def describe_destination(config: Config, name: SinkName) -> str:
    """Return where a sink writes, without credentials."""
    match name:
        case SinkName.POSTGRES:
            url = config.database_url
            return (
                str(config.data_dir.absolute())
                if url is None
                else _strip_credentials(url.get_secret_value())
            )
        case SinkName.NATS:
            servers = map(_strip_credentials, get_nats_url(config).split(","))
            return f"{','.join(sorted(servers))} {config.nats.audit_stream}"
        case SinkName.JSONL | SinkName.LOG:
            return str(config.audit.jsonl_path.absolute())


def _strip_credentials(url: str) -> str:
    parts = urlsplit(url.strip())
    place = parts.netloc.rpartition("@")[2]
    query = parse_qs(parts.query)
    sockets = [*query.get("host", ()), *query.get("port", ())]
    return " ".join([place.lower(), parts.path, *sockets])


def build_audit_trail(
    config: Config,
    local: dict[SinkName, AuditSink],
    nats_sink: Callable[[], AuditSink] | None = None,
) -> AuditTrail:
    """Return a trail of the configured sinks; without ``nats_sink``, of the local ones."""
    sinks = dict(local)
    if nats_sink is not None and SinkName.NATS in config.audit.sinks:
        sinks[SinkName.NATS] = nats_sink()
    return AuditTrail(
        logger=logging.getLogger("tileferry.audit"),
        sinks=[sinks[name] for name in dict.fromkeys(config.audit.sinks) if name in sinks],
        fail_closed=config.audit.fail_closed,
    )


def select_audit_log(
    config: Config, postgres: Callable[[], PostgresAuditLog], nats: Callable[[], AuditLog]
) -> AuditLog:
    """Return the log that is read: Postgres, or NATS if events go there and not to Postgres."""
    sinks = config.audit.sinks
    in_nats = SinkName.NATS in sinks and SinkName.POSTGRES not in sinks
    return nats() if in_nats else postgres()


def _open_jsonl_sink(path: Path, closing: ExitStack) -> JsonLinesAuditSink:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sink = JsonLinesAuditSink(path=path)
    closing.callback(sink.close)
    return sink


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


def build_alert_rule(config: Config) -> AlertRule:
    """Return the thresholds of alerts, their window and their hysteresis."""
    audit = config.audit
    return AlertRule(
        thresholds=build_alert_thresholds(audit.alert_retries_per_minute, config.retry),
        window_s=audit.alert_window_s,
        clear_share=audit.alert_clear_share,
    )


def build_alert_receivers(config: Config) -> list[AlertReceiver]:
    """Return the configured webhook, if there is one."""
    url = config.audit.alert_webhook_url
    if url is None:
        return []
    setting = "audit.alert_webhook_url"
    return [AlertWebhook(url=check_webhook_url(url.get_secret_value(), setting=setting))]


def build_retry_policies(
    config: Config, *, in_run: bool = False
) -> dict[RetryCategory, RetryPolicy]:
    """Return the configured policy of each category."""
    found = dict(build_category_policies(config.retry))
    if in_run:
        found[RetryCategory.API_REQUEST] = limit_to_run(found[RetryCategory.API_REQUEST])
    return found


def build_work_policies(config: Config) -> WorkPolicies:
    """Return the policies of runs and partitions."""
    age = config.partitions.max_age_days
    partition = build_partition_policy(config)
    return WorkPolicies(
        run=build_run_policy(config),
        partition=partition,
        terminality=TerminalityPolicy(
            max_attempts=partition.max_attempts,
            max_age=None if age is None else timedelta(days=age),
        ),
        quarantine=build_worker_quarantine_policy(config),
    )


def build_imagery_dates(config: Config) -> ImageryDates:
    """Return whether the source serves imagery by date: a plain tile server does not."""
    return ImageryDates(
        source=config.source,
        is_dated=config.xyz.url_template is None,
        allow_undated=config.partitions.allow_undated,
    )


def build_queue_budget(config: Config) -> RetryBudget:
    """Return the retry budget of each source in the queue."""
    worker = config.worker
    return RetryBudget(
        capacity=worker.retry_tokens,
        earned_per_success=worker.retry_tokens_per_run,
        refill_per_s=worker.retry_tokens_per_s,
    )


def build_work_store(config: Config, opened: Database, budget: RetryBudget) -> PostgresWorkStore:
    """Return a store that commits changes with their events when the audit log is in Postgres."""
    audited = SinkName.POSTGRES in config.audit.sinks
    return PostgresWorkStore(
        database=opened,
        audited=audited,
        budget=budget,
        start_grace=timedelta(seconds=config.worker.lease_s),
    )


def open_run_queue(opened: Database, budget: RetryBudget) -> Iterator[PostgresRunQueue]:
    """Open the queue; the first waiter opens a separate connection for notifications."""
    queue = PostgresRunQueue(database=opened, budget=budget)
    yield queue
    queue.close()


def build_validation_rules(config: Config, settings: DownloadSettings) -> ValidationRules:
    partitions = config.partitions
    return ValidationRules(
        max_missing_share=partitions.max_missing_share,
        max_rejected_share=partitions.max_rejected_share,
        max_downgraded_share=partitions.max_downgraded_share,
        resolution=settings.gate,
    )


def get_budget_bytes(config: Config, disk: SystemDisk) -> int:
    """Return the maximum size of the cache."""
    limit = config.c6.budget_bytes
    return compute_default_budget_bytes(disk.total_bytes()) if limit is None else limit


def get_reserve_bytes(config: Config, disk: SystemDisk) -> int:
    """Return how much of the disk must stay free."""
    reserve = config.c6.free_space_reserve_bytes
    return compute_default_reserve_bytes(disk.total_bytes()) if reserve is None else reserve


def build_worker_settings(config: Config) -> WorkerSettings:
    worker = config.worker
    return WorkerSettings(
        lease_s=worker.lease_s,
        batch=worker.batch,
        poll_s=worker.poll_s,
        sweep_s=worker.sweep_s,
        idle_patience_s=worker.idle_patience_s,
    )
