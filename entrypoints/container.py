"""The composition root: the one place where ports meet their adapters."""

import logging
import weakref
from functools import partial
from importlib.metadata import version
from typing import TypeVar, cast

from dependency_injector import containers, providers

from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints import (
    audit_factories,
    factories,
    messaging,
    tile_source,
    work_factories,
)
from tileferry.entrypoints.config import Config, SinkName

with import_on_call(globals()):
    from tileferry.adapters.filesystem import (
        FileCacheLock,
        FileCacheMark,
        FileJournalStore,
        FolderBackups,
        LocalInstallationFiles,
        find_waiting,
    )
    from tileferry.adapters.http import HttpTileDownloader, HttpTileUploader
    from tileferry.adapters.postgres import (
        PostgresAbsentTiles,
        PostgresBlobIndex,
        PostgresCacheBindings,
        PostgresCacheLedger,
        PostgresDatabaseCopies,
        PostgresEnvelopeStore,
        PostgresMapIndex,
        PostgresRefusedTiles,
        PostgresTileMetadataStore,
        PostgresTileOrigins,
    )
    from tileferry.adapters.signing import Ed25519KeyFile, Ed25519Keys
    from tileferry.adapters.system import (
        SharedPace,
        SharedRetryTokens,
        SystemClock,
        SystemDisk,
        ThreadHeartbeat,
        describe_location,
        new_cache_id,
        new_id,
        new_run_id,
        offload,
    )
    from tileferry.application import (
        CaptureIngest,
        IdempotencyManager,
        IdempotentRetryTileUploader,
        RetryManager,
    )
    from tileferry.application.alerts import AlertMonitor
    from tileferry.application.archive.archive_export import ArchiveExport
    from tileferry.application.archive.archive_import import ArchiveImport
    from tileferry.application.audit_reader import AuditReader
    from tileferry.application.backups import Backups
    from tileferry.application.cache.flight_overlay import FlightOverlays
    from tileferry.application.cache.identity import CacheIdentity
    from tileferry.application.cache.maintenance import CacheMaintenance
    from tileferry.application.cache.map_service import MapService
    from tileferry.application.cache.readiness import ReadinessCheck
    from tileferry.application.cache.tile_life import TileLives
    from tileferry.application.cache.verification import CacheVerification
    from tileferry.application.control.acquisition import PartitionAcquisition, RawDownloaderFactory
    from tileferry.application.control.control_calls import RetryingCalls
    from tileferry.application.control.key_expiry import KeyExpiry
    from tileferry.application.control.partition_control import PartitionControl
    from tileferry.application.control.run_control import RunControl
    from tileferry.application.control.worker import Worker
    from tileferry.application.download.area_survey import AreaSurvey
    from tileferry.application.download.session import PersistentTileDownloader
    from tileferry.application.packs import Packs
    from tileferry.application.policy_tuning import PolicyTuning
    from tileferry.application.ports import Clock, TileDownloader, TileUploader
    from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
    from tileferry.entrypoints.cache_session import CacheSession
    from tileferry.entrypoints.config.policies import build_retry_budget
    from tileferry.entrypoints.reading import ReadingParts
    from tileferry.entrypoints.work_factories import build_run_handlers

Component = TypeVar("Component")


class Container(containers.DeclarativeContainer):
    """Builds each part once, on first use, and closes what it opened."""

    config = providers.Dependency(instance_of=Config)
    clock: providers.Dependency[Clock] = providers.Dependency(
        default=providers.Singleton(SystemClock)
    )
    listener: providers.Dependency[ProgressListener] = providers.Dependency(
        default=providers.Object(NULL_LISTENER)
    )
    """Receives the progress events of all parts."""
    in_run = providers.Dependency(instance_of=bool, default=providers.Object(False))  # noqa: FBT003  # a provider, not a flag
    """Whether calls belong to queued runs: then long waits are left to the queue."""
    metrics: providers.Dependency[object] = providers.Dependency(default=providers.Object(None))
    """The Prometheus metrics of this process; ``None`` if it has none."""
    reading: providers.Dependency[ReadingParts] = providers.Dependency(
        default=providers.Resource(factories.open_reading, config, clock, listener)
    )
    """The database, and the parts that only read."""
    database = reading.provided.database
    control_database = reading.provided.control_database
    database_clock = reading.provided.database_clock
    """For all that compares dates with those in the database."""
    cache_root = config.provided.c11.cache_root
    metadata_store = providers.Singleton(
        PostgresTileMetadataStore, database=database, clock=database_clock
    )
    absent_tiles = providers.Singleton(PostgresAbsentTiles, database=database)
    refused_tiles = providers.Singleton(PostgresRefusedTiles, database=database)
    tile_origins = providers.Singleton(PostgresTileOrigins, database=database)
    blob_index = providers.Singleton(PostgresBlobIndex, database)
    tile_store = providers.Resource(factories.open_tile_store, cache_root, blob_index)
    cache_lock = providers.Singleton(FileCacheLock, root=cache_root)
    disk = providers.Singleton(SystemDisk, cache_root)
    cache_ledger = providers.Singleton(PostgresCacheLedger, database=database)
    flight_book = reading.provided.flight_book
    cache_mark = providers.Singleton(FileCacheMark, root=cache_root)
    cache_identity = providers.Singleton(
        CacheIdentity,
        mark=cache_mark,
        bindings=providers.Singleton(PostgresCacheBindings, database=database),
        ledger=cache_ledger,
        place=providers.Singleton(describe_location, cache_root),
        new_cache_id=providers.Object(new_cache_id),
    )
    cache_session = providers.Singleton(
        CacheSession,
        root=cache_root,
        lock=cache_lock,
        database=database.provider,
        identity=cache_identity.provider,
        clock=clock,
    )
    logger = providers.Callable(logging.getLogger, "tileferry.c11")
    journals = providers.Singleton(FileJournalStore, root=cache_root, logger=logger)
    budget_enforcer = providers.Singleton(
        factories.build_cache_budget,
        config,
        cache_ledger,
        disk,
        tile_store,
        journals,
        mark=cache_mark,
    )
    audit_log = reading.provided.audit_log
    local_sinks = providers.Resource(
        audit_factories.open_local_sinks, config, audit_log.provider, clock
    )
    telemetry = providers.Singleton(messaging.build_telemetry, config, metrics)
    policies = providers.Singleton(factories.build_retry_policies, config)
    nats_connection = providers.Resource(
        messaging.open_nats_connection,
        config,
        retry=providers.Singleton(
            RetryManager,
            clock=clock,
            new_id=providers.Object(new_id),
            # Its own retries cannot be recorded in JetStream.
            audit=providers.Singleton(audit_factories.build_audit_trail, config, local_sinks),
            policies=policies,
            telemetry=telemetry,
        ),
    )
    nats_audit_log = providers.Singleton(
        messaging.open_nats_audit_log, config, nats_connection.provider
    )
    nats_sink = providers.Singleton(
        audit_factories.buffer_sink,
        config,
        SinkName.NATS,
        providers.Singleton(
            messaging.build_nats_sink, nats_audit_log.provider, nats_connection.provider, clock
        ),
        clock,
    )
    audit_trail = providers.Singleton(
        audit_factories.build_audit_trail, config, local_sinks, nats_sink.provider
    )
    idempotency_store = providers.Singleton(
        factories.build_idempotency_store,
        config,
        control_database.provider,
        audit_log.provider,
        providers.Singleton(
            messaging.build_nats_store, config, nats_connection.provider, clock
        ).provider,
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
        keep_failures=config.provided.idempotency.keep_failures,
    )
    retry_manager = providers.Singleton(
        RetryManager,
        clock=clock,
        new_id=providers.Object(new_id),
        audit=audit_trail,
        sleep=clock.provided.sleep_async,
        offload=providers.Object(offload),
        policies=policies,
        idempotency_manager=idempotency_manager,
        telemetry=telemetry,
        progress=listener,
    )
    provider_address = providers.Singleton(tile_source.build_provider_address, config)
    http_client = providers.Resource(factories.open_http_client, provider_address)
    lane = providers.Resource(factories.open_transport, provider_address)
    response_limits = providers.Singleton(factories.build_response_limits, config)
    primary_provider = providers.Singleton(
        tile_source.build_tile_provider, config, http_client, lane, clock, response_limits
    )
    secondary_provider = providers.Resource(
        tile_source.open_secondary_provider, config, clock, response_limits
    )
    provider = providers.Singleton(
        tile_source.build_ordered_provider, primary_provider, secondary_provider
    )
    provider_retry = providers.Singleton(
        RetryManager,
        clock=clock,
        new_id=providers.Object(new_id),
        audit=audit_trail,
        policies=providers.Singleton(factories.build_retry_policies, config, in_run=in_run),
        tokens=providers.Singleton(
            SharedRetryTokens,
            clock=clock,
            budget=providers.Singleton(build_retry_budget, config.provided.c11),
        ),
        telemetry=telemetry,
        progress=listener,
    )
    download_settings = providers.Singleton(
        factories.build_download_settings, config, in_run=in_run
    )
    pace = providers.Singleton(
        SharedPace, clock=clock, pace=providers.Singleton(factories.build_pace, config)
    )
    fetch_runner = providers.Singleton(factories.build_fetch_runner, config)
    background = providers.Resource(factories.open_background_executor)
    tile_downloader = providers.Factory(
        HttpTileDownloader,
        http_client=http_client,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        budget_enforcer=budget_enforcer,
        logger=logger,
        clock=database_clock,
        settings=download_settings,
        provider=provider,
        retry=provider_retry,
        pace=pace,
        runner=fetch_runner,
        background=background,
        progress=listener,
        flights=flight_book,
        absent_tiles=providers.Singleton(tile_source.build_absent_tiles, config, absent_tiles),
        refused_tiles=refused_tiles,
        tile_origins=tile_origins,
    )
    download_session = providers.Factory(
        PersistentTileDownloader,
        retry=provider_retry,
        clock=clock,
        progress=listener,
    )
    fdr = reading.provided.fdr
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
        settings=providers.Singleton(factories.build_upload_settings, config),
        limits=response_limits,
        background=background,
    )
    retrying_tile_uploader = providers.Factory(
        IdempotentRetryTileUploader,
        tile_metadata_store=metadata_store,
        fdr_client=fdr,
        logger=logger,
        clock=clock,
        config=providers.Singleton(factories.build_retry_config, config),
        audit=audit_trail,
        progress=listener,
    )
    tile_uploader = providers.Callable(
        factories.assemble_tile_uploader,
        config,
        plain=http_tile_uploader.provider,
        retrying=retrying_tile_uploader.provider,
        logger=logger,
        progress=listener,
        tiles=metadata_store,
    )
    capture_ingest = providers.Factory(
        CaptureIngest,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        budget_enforcer=budget_enforcer,
        lock=cache_lock,
        clock=database_clock,
        logger=logger,
        progress=listener,
        flights=flight_book,
    )
    cache_export = providers.Factory(
        ArchiveExport,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        logger=logger,
        progress=listener,
    )
    archive_import = providers.Factory(
        ArchiveImport,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        budget_enforcer=budget_enforcer,
        lock=cache_lock,
        clock=database_clock,
        logger=logger,
        gate=download_settings.provided.gate,
        progress=listener,
        flights=flight_book,
    )
    raw_root = config.provided.partitions.raw_root
    raw_sink = reading.provided.raw_sink
    imagery_dates = providers.Singleton(work_factories.build_imagery_dates, config)
    acquisition = providers.Factory(
        PartitionAcquisition,
        sink=raw_sink,
        imagery=imagery_dates,
        downloaders=providers.Factory(
            RawDownloaderFactory,
            provider=primary_provider,
            runner=fetch_runner,
            retry=provider_retry,
            pace=pace,
            clock=database_clock,
            logger=logger,
            disk=providers.Object(SystemDisk),
            free_space_reserve_bytes=providers.Singleton(
                factories.get_reserve_bytes, config, providers.Singleton(SystemDisk, raw_root)
            ),
            settings=download_settings,
            background=background,
        ),
        clock=database_clock,
        logger=logger,
        rules=providers.Singleton(work_factories.build_validation_rules, config, download_settings),
    )
    queue_budget = reading.provided.queue_budget
    run_queue = providers.Resource(
        work_factories.open_run_queue, config, control_database, queue_budget
    )
    work_store = providers.Singleton(
        work_factories.build_work_store, config, control_database, queue_budget
    )
    work_policies = reading.provided.work_policies
    work_logger = providers.Callable(logging.getLogger, "tileferry.work")
    control_calls = providers.Singleton(RetryingCalls, retry_manager)
    run_control = providers.Singleton(
        RunControl,
        queue=run_queue,
        store=work_store,
        logger=work_logger,
        new_run_id=providers.Object(new_run_id),
        policies=work_policies,
        calls=control_calls,
    )
    partition_control = providers.Singleton(
        PartitionControl,
        store=work_store,
        raw=raw_sink,
        imagery=imagery_dates,
        logger=work_logger,
        new_run_id=providers.Object(new_run_id),
        policies=work_policies,
        calls=control_calls,
    )
    run_handlers = providers.Singleton(
        build_run_handlers,
        clock=clock,
        acquisition=acquisition.provider,
        downloader=tile_downloader.provider,
        uploader=tile_uploader.provider,
        lock_cache=cache_session.provided.hold,
        cache_root=cache_root,
        progress=listener,
    )
    worker = providers.Factory(
        Worker,
        queue=run_queue,
        handlers=run_handlers,
        sources=providers.List(config.provided.source),
        control=run_control,
        partitions=partition_control,
        keys=providers.Singleton(
            KeyExpiry,
            store=providers.Singleton(factories.build_key_expiry, config, idempotency_store, clock),
            calls=control_calls,
        ),
        heartbeat=providers.Singleton(ThreadHeartbeat),
        clock=clock,
        logger=work_logger,
        progress=listener,
        deliver_events=audit_trail.provided.deliver,
    )
    cache_maintenance = providers.Factory(
        CacheMaintenance,
        ledger=cache_ledger,
        lock=cache_lock,
        store=tile_store.provider,
        before_removal=journals.provided.discard_complete,
    )
    cache_verification = providers.Factory(
        CacheVerification,
        store=tile_store.provider,
        check_cache=cache_session.provided.check,
        progress=listener,
    )
    map_service = providers.Singleton(
        MapService,
        index=providers.Singleton(PostgresMapIndex, database=database),
        store=tile_store,
        absent_tiles=absent_tiles,
        refused_tiles=refused_tiles,
        clock=clock,
    )
    readiness = providers.Factory(
        ReadinessCheck,
        accepts_absent=config.provided.c6.accept_absent,
        confirmed_within_days=config.provided.c6.confirmed_within_days,
        tile_metadata_store=metadata_store,
        freshness=metadata_store.provided.freshness,
        resolution=download_settings.provided.gate,
        store=tile_store.provider,
        check_cache=cache_session.provided.check,
        clock=database_clock,
        progress=listener,
        absent_tiles=absent_tiles,
    )
    area_survey = providers.Factory(
        AreaSurvey,
        provider=provider,
        retry=provider_retry,
        pace=pace,
        runner=fetch_runner,
        journals=journals,
        tile_metadata_store=metadata_store,
        headroom=budget_enforcer.provider,
        settings=download_settings,
        freshness=metadata_store.provided.freshness,
        clock=database_clock,
        requests_per_s=providers.Callable(tile_source.get_max_requests_per_s, config),
        absent_tiles=absent_tiles,
    )
    readable_audit_log = providers.Singleton(
        audit_factories.select_audit_log, config, audit_log.provider, nats_audit_log.provider
    )
    audit_reader = providers.Singleton(
        AuditReader,
        log=readable_audit_log,
        retries=retry_manager,
        false_copies=providers.Callable(getattr, readable_audit_log, "find_false_copies", None),
        find_waiting=providers.Callable(partial, find_waiting, cache_root),
        progress=listener,
    )
    tile_lives = providers.Factory(
        TileLives,
        map_service=map_service,
        flights=flight_book,
        readiness=readiness,
        tile_origins=tile_origins,
        store=tile_store,
        audit=audit_reader,
        cache_root=cache_root,
    )
    flight_overlays = providers.Factory(
        FlightOverlays, readiness=readiness, refused_tiles=refused_tiles
    )
    packs = providers.Factory(
        Packs,
        tile_store=tile_store,
        tile_metadata_store=metadata_store,
        absent_tiles=absent_tiles,
        flights=flight_book,
        readiness=readiness,
        importer=archive_import.provider,
        signer=providers.Singleton(Ed25519KeyFile, config.provided.pack.key_file),
        trusted_keys=providers.Callable(frozenset, config.provided.pack.trusted_keys),
        audit=audit_trail,
        clock=database_clock,
        progress=listener,
    )
    backups = providers.Factory(
        Backups,
        store=providers.Singleton(FolderBackups),
        files=providers.Singleton(
            LocalInstallationFiles, cache_root=cache_root, raw_root=raw_root, clock=clock
        ),
        database=providers.Singleton(PostgresDatabaseCopies, database=database).provider,
        clock=clock,
        version=providers.Callable(version, "tileferry"),
        # Opened when all is restored: the store creates the folders of a cache.
        verify_cache=providers.Callable(
            partial, factories.verify_cache, cache_verification.provider
        ),
        verify_audit=providers.Callable(
            partial,
            factories.verify_audit,
            providers.Singleton(
                AuditReader, log=audit_log, retries=retry_manager, progress=listener
            ).provider,
        ),
        progress=listener,
    )
    policy_tuning = providers.Singleton(PolicyTuning, reader=audit_reader)
    alert_monitor = providers.Factory(
        AlertMonitor,
        rule=providers.Singleton(audit_factories.build_alert_rule, config),
        reader=audit_reader,
        retries=retry_manager,
        audit=audit_trail,
        clock=clock,
        logger=providers.Callable(logging.getLogger, "tileferry.alerts"),
        receivers=providers.Singleton(audit_factories.build_alert_receivers, config),
    )


def build_tile_downloader(config: Config) -> TileDownloader:
    """Return a downloader for a configuration; its caller must hold the cache's lock."""
    container = Container(config=config)
    return _bind_lifetime(container, cast("TileDownloader", container.tile_downloader()))


def build_tile_uploader(config: Config) -> TileUploader:
    """Return an uploader for a configuration; its caller must hold the cache's lock.

    It retries what the provider rejects, unless ``c11.disable_retry_decorator`` is set.
    """
    container = Container(config=config)
    return _bind_lifetime(container, container.tile_uploader())


def _bind_lifetime(container: Container, part: Component) -> Component:
    """Keep a container open as long as ``part``: a collected container closes its resources."""
    weakref.finalize(part, container.shutdown_resources)
    return part
