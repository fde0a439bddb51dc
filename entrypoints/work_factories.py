"""Factories of runs and partitions: policies, queue, rules and workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.runs import Run, RunKind
from tileferry.entrypoints.config import Config, SinkName

with import_on_call(globals()):
    from tileferry.adapters.postgres import Database, PostgresRunQueue, PostgresWorkStore
    from tileferry.adapters.system import InterruptibleClock
    from tileferry.application import DownloadSettings
    from tileferry.application.control.acquisition import PartitionAcquisition
    from tileferry.application.control.policies import WorkPolicies
    from tileferry.application.control.run_handlers import (
        AcquirePartitionHandler,
        CacheAccess,
        DownloadAreaHandler,
        UploadFlightHandler,
    )
    from tileferry.application.control.worker import RunHandler, RunResult, WorkerSettings
    from tileferry.application.ports import TileDownloader, TileUploader
    from tileferry.application.ports.progress import ProgressListener
    from tileferry.domain.partitions import TerminalityPolicy
    from tileferry.domain.partitions.imagery_dates import ImageryDates
    from tileferry.domain.partitions.validator import ValidationRules
    from tileferry.domain.retry import RetryBudget
    from tileferry.entrypoints.config.policies import (
        build_partition_policy,
        build_run_policy,
        build_worker_quarantine_policy,
    )
    from tileferry.entrypoints.database import open_listen_database


def select_kinds(kinds: Sequence[RunKind]) -> Sequence[RunKind]:
    """Return the kinds of runs that a worker claims: these, or all if there are none."""
    return kinds or tuple(RunKind)


def uses_cache(kinds: Sequence[RunKind]) -> bool:
    """Return whether runs of these kinds use the cache; partitions have their own folders."""
    return not {RunKind.DOWNLOAD_AREA, RunKind.UPLOAD_FLIGHT}.isdisjoint(kinds)


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
        is_dated=not config.xyz.is_set,
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


def open_run_queue(
    config: Config, opened: Database, budget: RetryBudget
) -> Iterator[PostgresRunQueue]:
    """Open the queue; the first waiter opens a separate connection for notifications."""
    listening = open_listen_database(config)
    queue = PostgresRunQueue(database=opened, budget=budget, listen_database=listening)
    yield queue
    queue.close()
    if listening is not None:
        listening.close()


def build_validation_rules(config: Config, settings: DownloadSettings) -> ValidationRules:
    partitions = config.partitions
    return ValidationRules(
        max_missing_share=partitions.max_missing_share,
        max_rejected_share=partitions.max_rejected_share,
        max_downgraded_share=partitions.max_downgraded_share,
        resolution=settings.gate,
    )


def build_worker_settings(config: Config) -> WorkerSettings:
    worker = config.worker
    return WorkerSettings(
        lease_s=worker.lease_s,
        batch=worker.batch,
        poll_s=worker.poll_s,
        sweep_s=worker.sweep_s,
        idle_patience_s=worker.idle_patience_s,
    )


def build_run_handlers(
    *,
    clock: InterruptibleClock,
    acquisition: Callable[[], PartitionAcquisition],
    downloader: Callable[..., TileDownloader],
    uploader: Callable[..., TileUploader],
    lock_cache: Callable[[], AbstractContextManager[None]],
    cache_root: Path,
    progress: ProgressListener,
) -> Mapping[RunKind, RunHandler]:
    """Return the handler of each kind of run; all parts wait by ``clock``."""
    cache = CacheAccess(lock=lock_cache, clock=clock, progress=progress)
    handlers: Mapping[RunKind, RunHandler] = {
        RunKind.ACQUIRE_PARTITION: AcquirePartitionHandler(acquisition, progress),
        RunKind.DOWNLOAD_AREA: DownloadAreaHandler(
            downloader=lambda listener: downloader(progress=listener),
            cache=cache,
            cache_root=cache_root,
            progress=progress,
        ),
        RunKind.UPLOAD_FLIGHT: UploadFlightHandler(
            uploader=lambda listener: uploader(progress=listener),
            cache=cache,
            progress=progress,
        ),
    }
    return {kind: partial(_run_interruptibly, clock, handler) for kind, handler in handlers.items()}


def _run_interruptibly(
    clock: InterruptibleClock, handler: RunHandler, run: Run, check: Callable[[], None], /
) -> RunResult:
    """Run a handler whose waits end early when the worker stops or loses the lease."""
    clock.check = check
    try:
        return handler(run, check)
    finally:
        clock.check = lambda: None
