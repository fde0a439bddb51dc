"""The composition root: the one place where ports meet their adapters."""

import logging
import socket
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import httpx
from dependency_injector import containers, providers

from tileferry.adapters.filesystem import (
    FileCacheLock,
    FileFdrClient,
    FileJournalStore,
    FlightRecordFile,
    JsonLinesAuditSink,
    PictureFolder,
    SegmentTileStore,
)
from tileferry.adapters.http import (
    FastLane,
    HttpTileDownloader,
    HttpTileProvider,
    HttpTileUploader,
    ProviderAddress,
    ResponseLimits,
    new_client,
)
from tileferry.adapters.logs import LogAuditSink
from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresBlobIndex,
    PostgresCacheLedger,
    PostgresEnvelopeStore,
    PostgresIdempotencyStore,
    PostgresTileMetadataStore,
    start_embedded,
)
from tileferry.adapters.signing import Ed25519Keys
from tileferry.adapters.system import (
    SharedRetryTokens,
    SystemClock,
    SystemDisk,
    ThreadHeartbeat,
    ThreadWorkers,
    new_id,
    offload,
)
from tileferry.application import (
    AuditTrail,
    C11RetryConfig,
    CacheBudget,
    CaptureIngest,
    DownloadSettings,
    IdempotencyManager,
    IdempotentRetryTileUploader,
    RetryManager,
    UploadSettings,
)
from tileferry.application.audit_reading import AuditReader
from tileferry.application.giveups import GiveupReader
from tileferry.application.ports import AuditSink, TileDownloader, TileUploader
from tileferry.application.ports.uploads import FlightRecords, UploadObserver
from tileferry.application.upload import UNSEEN
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory, RetryPolicy
from tileferry.domain.tiles import ResolutionGate, default_budget_bytes, default_reserve_bytes
from tileferry.entrypoints.api_key import service_api_key
from tileferry.entrypoints.config import Config, SinkName
from tileferry.entrypoints.logs import structured_logger
from tileferry.entrypoints.named_policies import download_policy
from tileferry.entrypoints.retry_config import configured_policies

Part = TypeVar("Part")


def _database(config: Config) -> Iterator[Database]:
    url = config.database_url
    address = start_embedded(config.data_dir) if url is None else url.get_secret_value()
    database = Database.at(address)
    yield database
    database.close()


def _tile_store(root: Path, index: PostgresBlobIndex) -> Iterator[SegmentTileStore]:
    with SegmentTileStore(root=root, index=index) as store:
        yield store


def _budget(
    config: Config,
    ledger: PostgresCacheLedger,
    disk: SystemDisk,
    store: SegmentTileStore,
    journals: FileJournalStore,
) -> CacheBudget:
    def reclaim() -> None:
        store.forget_locations()
        store.compact()

    budget, reserve = config.c6.budget_bytes, config.c6.free_space_reserve_bytes
    size = disk.total_bytes()
    return CacheBudget(
        ledger=ledger,
        disk=disk,
        reclaim=reclaim,
        before_eviction=journals.discard_complete,
        # One process at a time has the cache's lock, so a promise by this name that is found there
        # was made by one that died.
        reservation_id=f"{socket.gethostname()}:{config.c11.cache_root}",
        budget_bytes=default_budget_bytes(size) if budget is None else budget,
        free_space_reserve_bytes=default_reserve_bytes(size) if reserve is None else reserve,
    )


def _provider_address(config: Config) -> ProviderAddress:
    c11 = config.c11
    if c11.satellite_provider_url is None:
        raise InvalidValueError(
            field="c11.satellite_provider_url",
            value=None,
            problem="is not set",
            remedy="set it in tileferry.toml, or in TILEFERRY_C11_SATELLITE_PROVIDER_URL",
        )
    return ProviderAddress(
        url=c11.satellite_provider_url,
        service_api_key=service_api_key(c11),
        ca_file=c11.ca_file,
        timeout_s=c11.http_timeout_s,
        connections=c11.max_concurrent_requests,
    )


def _http_client(address: ProviderAddress) -> Iterator[httpx.Client]:
    with new_client(address) as client:
        yield client


def _lane(address: ProviderAddress) -> Iterator[FastLane]:
    lane = FastLane(address)
    yield lane
    lane.close()


def _provider(
    config: Config,
    client: httpx.Client,
    lane: FastLane,
    clock: SystemClock,
    limits: ResponseLimits,
) -> HttpTileProvider:
    return HttpTileProvider(
        client=client, lane=lane, clock=clock, source=config.c11.source, limits=limits
    )


def _download_settings(config: Config) -> DownloadSettings:
    c11 = config.c11
    return DownloadSettings(
        policy=download_policy(c11),
        gate=ResolutionGate(
            min_m_per_px=c11.min_resolution_m_per_px, max_m_per_px=c11.max_resolution_m_per_px
        ),
    )


def _fdr(root: Path, clock: SystemClock) -> Iterator[FileFdrClient]:
    recorder = FileFdrClient(root=root, clock=clock)
    yield recorder
    recorder.close()


def _retry_config(config: Config) -> C11RetryConfig:
    c11 = config.c11
    return C11RetryConfig(
        max_in_call_retries=c11.max_in_call_retries,
        max_per_tile_attempts=c11.max_per_tile_attempts,
        backoff_base_s=c11.backoff_base_s,
        backoff_cap_s=c11.backoff_cap_s,
    )


def _upload_settings(config: Config) -> UploadSettings:
    c11 = config.c11
    return UploadSettings(
        batch_tiles_max=c11.upload_batch_tiles,
        batch_bytes_max=c11.upload_batch_bytes,
        attempts_max=None if c11.disable_retry_decorator else c11.max_per_tile_attempts,
    )


def _response_limits(config: Config) -> ResponseLimits:
    c11 = config.c11
    return ResponseLimits(tile_bytes_max=c11.max_tile_bytes, deadline_s=c11.response_deadline_s)


def _background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tileferry-commit") as executor:
        yield executor


def _audit_trail(config: Config, audit_log: Callable[[], AuditSink]) -> Iterator[AuditTrail]:
    with ExitStack() as closing:
        makers: dict[SinkName, Callable[[], AuditSink]] = {
            SinkName.POSTGRES: audit_log,
            SinkName.JSONL: partial(_json_lines, config.audit.jsonl_path, closing),
            SinkName.LOG: lambda: LogAuditSink(logger=structured_logger("tileferry.audit")),
        }
        yield AuditTrail(
            logger=logging.getLogger("tileferry.audit"),
            sinks=[makers[name]() for name in dict.fromkeys(config.audit.sinks)],
            fail_closed=config.audit.fail_closed,
        )


def _json_lines(path: Path, closing: ExitStack) -> JsonLinesAuditSink:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sink = JsonLinesAuditSink(path=path)
    closing.callback(sink.close)
    return sink


def _idempotency_store(
    config: Config, database: Database, audit_log: Callable[[], PostgresAuditLog]
) -> PostgresIdempotencyStore:
    chained = SinkName.POSTGRES in config.audit.sinks
    return PostgresIdempotencyStore(database=database, audit_sink=audit_log() if chained else None)


def _policies(config: Config) -> dict[RetryCategory, RetryPolicy]:
    return dict(configured_policies(config.retry))


class Container(containers.DeclarativeContainer):
    """Makes each part once, when it is first asked for, and closes what needs closing."""

    config = providers.Dependency(instance_of=Config)
    clock = providers.Singleton(SystemClock)
    database = providers.Resource(_database, config)
    cache_root = config.provided.c11.cache_root
    metadata_store = providers.Singleton(PostgresTileMetadataStore, database=database, clock=clock)
    blob_index = providers.Singleton(PostgresBlobIndex, database)
    tile_store = providers.Resource(_tile_store, cache_root, blob_index)
    cache_lock = providers.Singleton(FileCacheLock, root=cache_root)
    disk = providers.Singleton(SystemDisk, cache_root)
    cache_ledger = providers.Singleton(PostgresCacheLedger, database=database)
    logger = providers.Callable(logging.getLogger, "tileferry.c11")
    journals = providers.Singleton(FileJournalStore, root=cache_root, logger=logger)
    budget_enforcer = providers.Singleton(_budget, config, cache_ledger, disk, tile_store, journals)
    audit_log = providers.Singleton(PostgresAuditLog, database=database)
    audit_trail = providers.Resource(_audit_trail, config, audit_log.provider)
    idempotency_store = providers.Singleton(
        _idempotency_store, config, database, audit_log.provider
    )
    idempotency_manager = providers.Singleton(
        IdempotencyManager,
        store=idempotency_store,
        clock=clock,
        new_id=providers.Object(new_id),
        audit=audit_trail,
        sleep=clock.provided.sleep_async,
        offload=providers.Object(offload),
        heartbeat=providers.Singleton(ThreadHeartbeat),
    )
    retry_manager = providers.Singleton(
        RetryManager,
        clock=clock,
        new_id=providers.Object(new_id),
        audit=audit_trail,
        sleep=clock.provided.sleep_async,
        offload=providers.Object(offload),
        policies=providers.Singleton(_policies, config),
        idempotency_manager=idempotency_manager,
    )
    provider_address = providers.Singleton(_provider_address, config)
    http_client = providers.Resource(_http_client, provider_address)
    lane = providers.Resource(_lane, provider_address)
    response_limits = providers.Singleton(_response_limits, config)
    provider = providers.Singleton(_provider, config, http_client, lane, clock, response_limits)
    provider_retry = providers.Singleton(
        RetryManager,
        clock=clock,
        new_id=providers.Object(new_id),
        audit=audit_trail,
        policies=providers.Singleton(_policies, config),
        tokens=providers.Singleton(SharedRetryTokens, clock=clock),
    )
    download_settings = providers.Singleton(_download_settings, config)
    workers = providers.Singleton(ThreadWorkers, config.provided.c11.max_concurrent_requests)
    background = providers.Resource(_background)
    tile_downloader = providers.Factory(
        HttpTileDownloader,
        http_client=http_client,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        budget_enforcer=budget_enforcer,
        logger=logger,
        clock=clock,
        settings=download_settings,
        provider=provider,
        retry=provider_retry,
        workers=workers,
        background=background,
    )
    fdr = providers.Resource(_fdr, cache_root, clock)
    http_tile_uploader = providers.Factory(
        HttpTileUploader,
        http_client=http_client,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        envelope_store=providers.Singleton(PostgresEnvelopeStore, database),
        lock=cache_lock,
        keys=providers.Singleton(Ed25519Keys),
        retry=provider_retry,
        logger=logger,
        clock=clock,
        settings=providers.Singleton(_upload_settings, config),
        limits=response_limits,
        background=background,
    )
    retrying_tile_uploader = providers.Factory(
        IdempotentRetryTileUploader,
        tile_metadata_store=metadata_store,
        fdr_client=fdr,
        logger=logger,
        clock=clock,
        config=providers.Singleton(_retry_config, config),
        audit=audit_trail,
    )
    capture_ingest = providers.Factory(
        CaptureIngest,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        budget_enforcer=budget_enforcer,
        lock=cache_lock,
        logger=logger,
    )
    giveup_reader = providers.Factory(GiveupReader, fdr_client=fdr)
    pictures = providers.Factory(PictureFolder, cache_root)
    audit_reader = providers.Singleton(
        AuditReader,
        log=audit_log,
        retries=retry_manager,
        false_copies=audit_log.provided.false_copies,
    )


def build_tile_downloader(config: Config) -> TileDownloader:
    """Return a downloader for a configuration; whoever uses it holds the cache's lock meanwhile."""
    container = Container(config=config)
    return _keeping(container, cast("TileDownloader", container.tile_downloader()))


def build_tile_uploader(config: Config) -> TileUploader:
    """Return an uploader for a configuration; whoever uses it holds the cache's lock meanwhile.

    It tries again what the provider rejects, unless ``c11.disable_retry_decorator`` is set.
    """
    container = Container(config=config)
    return _keeping(container, tile_uploader_of(container))


def _keeping(container: Container, part: Part) -> Part:
    """Have a container live as long as what it made: else it is collected, and closes all of it."""
    weakref.finalize(part, container.shutdown_resources)
    return part


def tile_uploader_of(
    container: Container,
    *,
    flight_records: FlightRecords | None = None,
    observer: UploadObserver = UNSEEN,
) -> TileUploader:
    """Return the uploader of a container that somebody else closes."""
    records = flight_records or FlightRecordFile(path=container.config().c11.flight_record_file)
    bare: HttpTileUploader = container.http_tile_uploader(flight_records=records, observer=observer)
    if container.config().c11.disable_retry_decorator:
        container.logger().info(
            "uploads make one pass: c11.disable_retry_decorator is set",
            extra={"kind": "c11.upload.retry_disabled"},
        )
        return bare
    return cast(
        "TileUploader", container.retrying_tile_uploader(inner=bare, on_counted=bare.counted)
    )
