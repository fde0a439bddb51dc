"""Prometheus metrics of this process, counted from its progress events."""

import time

from attrs import define, field
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    BatchAnswered,
    CacheAwaited,
    DatabaseAwaited,
    DownloadFinished,
    DownloadGivenUp,
    PaceChanged,
    PassScheduled,
    ProgressEvent,
    ProgressListener,
    QueueReached,
    RequestHeld,
    RunFinished,
    RunStarted,
    TileProcessed,
    UploadFinished,
)
from tileferry.domain.runs import RunKind, RunStatus

_BUCKETS = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200)
_JUDGED = {RunStatus.PASSED, RunStatus.NEEDS_REVIEW, RunStatus.FAILED}


@define(eq=False)
class EventMetrics:
    """A listener that counts events and passes them on."""

    registry: CollectorRegistry
    listener: ProgressListener = NULL_LISTENER
    is_queue_reached: bool = field(default=True, init=False)
    _tiles: Counter = field(init=False)
    _downloaded: Counter = field(init=False)
    _uploads: Counter = field(init=False)
    _uploaded: Counter = field(init=False)
    _transfers: Counter = field(init=False)
    _passes: Counter = field(init=False)
    _held: Counter = field(init=False)
    _concurrency: Gauge = field(init=False)
    _spacing: Gauge = field(init=False)
    _started: Counter = field(init=False)
    _finished: Counter = field(init=False)
    _duration: Histogram = field(init=False)
    _judged: Gauge = field(init=False)
    _waits: Counter = field(init=False)
    _reached: Gauge = field(init=False)

    def __attrs_post_init__(self) -> None:
        def build_counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tileferry_{name}", text, labels, registry=self.registry)

        def build_gauge(name: str, text: str) -> Gauge:
            return Gauge(f"tileferry_{name}", text, registry=self.registry)

        self._tiles = build_counter("download_tiles", "Tiles of downloads by outcome", "outcome")
        self._downloaded = build_counter("download_bytes", "Bytes of tiles that were received")
        self._uploads = build_counter(
            "upload_tiles", "Answers to uploaded tiles by status", "status"
        )
        self._uploaded = build_counter("upload_bytes", "Bytes of tiles that were sent and answered")
        self._transfers = build_counter(
            "transfers", "Ended downloads and uploads by outcome", "kind", "outcome"
        )
        self._passes = build_counter("download_passes", "Passes that left tiles by rule", "rule")
        self._held = build_counter(
            "requests_held_seconds", "Seconds that requests waited before they were sent", "rule"
        )
        self._concurrency = build_gauge("pace_concurrency", "Requests that may run at a time")
        self._spacing = build_gauge("pace_spacing_seconds", "Time between two requests")
        self._started = build_counter("runs_started", "Runs that this worker started", "kind")
        self._finished = build_counter(
            "runs_finished", "Runs that this worker ended by status", "kind", "status"
        )
        self._duration = Histogram(
            "tileferry_run_duration_seconds",
            "Time that a run took",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._judged = build_gauge(
            "last_verdict_timestamp_seconds", "When a run of this worker got its verdict last"
        )
        self._waits = build_counter(
            "waits", "Times that work waited for the cache or the database", "reason"
        )
        self._reached = build_gauge("queue_reachable", "Whether the worker reaches the queue")
        self._reached.set(1)
        for fate in TileFate:
            self._tiles.labels(fate.value)
        for kind in RunKind:
            self._started.labels(kind.value)

    def __call__(self, event: ProgressEvent, /) -> None:
        self._count(event)
        self.listener(event)

    def _count(self, event: ProgressEvent) -> None:
        match event:
            case TileProcessed():
                self._tiles.labels(event.fate.value).inc()
                self._downloaded.inc(event.size_bytes)
            case BatchAnswered():
                for answer in event.answers:
                    self._uploads.labels(answer.status.value).inc()
                self._uploaded.inc(event.size_bytes)
            case RequestHeld():
                self._held.labels(event.rule.value).inc(event.delay_s)
            case PaceChanged():
                self._concurrency.set(event.pace.concurrency)
                self._spacing.set(event.pace.spacing_s)
            case PassScheduled():
                self._passes.labels(event.rule.value).inc()
            case CacheAwaited():
                self._waits.labels("cache").inc()
            case DatabaseAwaited():
                self._waits.labels("database").inc()
            case _:
                self._count_work(event)

    def _count_work(self, event: ProgressEvent) -> None:
        """Count the ends of transfers, and the runs of a worker."""
        match event:
            case DownloadFinished():
                self._transfers.labels("download", event.report.outcome.value).inc()
            case UploadFinished():
                self._transfers.labels("upload", event.report.outcome.value).inc()
            case DownloadGivenUp():
                self._transfers.labels("download", "given_up").inc()
            case RunStarted():
                self._started.labels(event.kind.value).inc()
            case RunFinished():
                self._finish(event)
            case QueueReached():
                self.is_queue_reached = event.is_reached
                self._reached.set(event.is_reached)
            case _:  # events of a view
                pass

    def _finish(self, event: RunFinished) -> None:
        self._finished.labels(event.kind.value, event.status.value).inc()
        self._duration.labels(event.kind.value).observe(event.duration_s)
        if event.status in _JUDGED:
            self._judged.set(time.time())
