"""Prometheus metrics of the installation's state, read from its database when they are scraped."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from attrs import define, field
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tileferry.application.ports.figures import (
    DatabaseFigures,
    FigureReader,
    QueueFigures,
    StorageFigures,
)
from tileferry.domain.errors import TileManagerError

FRESH_S = 5.0
"""How long figures are reused, however often they are scraped."""
_STATUSES = {
    "runs": ("discovered", "processing", "passed", "needs_review", "failed", "error"),
    "partitions": ("pending", "success", "failed"),
}


@define(eq=False)
class StateMetrics(Collector):
    """Reads the figures at most once in ``FRESH_S``; concurrent scrapes share one read."""

    reader: FigureReader
    storage: Callable[[], StorageFigures]
    problem: str | None = field(default=None, init=False)
    """Why the last read of the database failed, if it did."""
    _figures: DatabaseFigures | None = field(default=None, init=False)
    _read_s: float | None = field(default=None, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def refresh(self) -> DatabaseFigures | None:
        """Return figures at most ``FRESH_S`` old; ``None`` if the database cannot be read."""
        with self._guard:
            now_s = time.monotonic()
            if self._read_s is None or now_s - self._read_s >= FRESH_S:
                try:
                    self._figures, self.problem = self.reader.read(), None
                except TileManagerError as error:
                    self._figures, self.problem = None, str(error)
                self._read_s = time.monotonic()
            return self._figures

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry must not read the database to learn the names."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics; if the database is unreachable, only ``up`` and those of the disk."""
        figures = self.refresh()
        yield _build_gauge(
            "database_up", "Whether the database answers", float(figures is not None)
        )
        try:
            storage = self.storage()
        except TileManagerError:  # the other metrics do not need the disk
            pass
        else:
            yield from _describe_storage(storage)
        if figures is not None:
            yield from _describe_database(figures)


def _build_gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tileferry_{name}", text, value=value)


def _build_gauges(
    name: str, text: str, label: str, values: Mapping[str, float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"tileferry_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _build_timestamp(name: str, text: str, moment: datetime | None) -> GaugeMetricFamily:
    return _build_gauge(name, text, 0.0 if moment is None else moment.timestamp())


def _describe_storage(storage: StorageFigures) -> Iterable[Metric]:
    yield _build_gauge("cache_bytes", "Size of the cache's files", storage.cache_bytes)
    yield _build_gauge("cache_budget_bytes", "Maximum size of the cache", storage.budget_bytes)
    yield _build_gauge("disk_free_bytes", "Free space of the cache's disk", storage.free_bytes)
    yield _build_gauge("disk_reserve_bytes", "Space that must stay free", storage.reserve_bytes)
    yield _build_gauges(
        "audit_outbox_bytes",
        "Audit events that wait for a sink",
        "sink",
        storage.outbox_bytes,
    )


def _describe_database(figures: DatabaseFigures) -> Iterable[Metric]:
    yield _build_gauge("database_latency_seconds", "Time of one short query", figures.latency_s)
    yield _build_gauges("runs", "Runs by status", "status", _fill("runs", figures.runs))
    yield _build_gauges(
        "partitions", "Partitions by status", "status", _fill("partitions", figures.partitions)
    )
    yield _build_gauge("workers", "Workers that hold a lease", figures.workers)
    yield _build_gauge(
        "leases_expired", "Leases that were not renewed in time", figures.expired_leases
    )
    yield _build_gauge("tiles", "Tiles in the cache", figures.tiles)
    yield _build_gauge("tile_bytes", "Size of the tiles in the cache", figures.tile_bytes)
    yield _build_gauge("uploads_pending", "Captured tiles to upload", figures.pending_uploads)
    yield _build_gauge("giveups", "Captured tiles whose upload was given up", figures.giveups)
    yield CounterMetricFamily(
        "tileferry_audit_entries", "Entries of the audit log", value=figures.audit_sequence
    )
    yield _build_timestamp(
        "audit_last_entry_timestamp_seconds", "When the newest event occurred", figures.audit_at
    )
    yield _build_timestamp(
        "partition_last_verdict_timestamp_seconds",
        "When the validator judged a partition last",
        figures.verdict_at,
    )
    yield from _describe_queues(figures.queues, figures.now)


def _fill(table: str, counts: Mapping[str, int]) -> dict[str, float]:
    """Return a count for each status, so that a series does not end when its count is 0."""
    return {status: counts.get(status, 0) for status in _STATUSES[table]}


def _describe_queues(queues: Iterable[QueueFigures], now: datetime) -> Iterable[Metric]:
    def build_per_source(
        name: str, text: str, read: Callable[[QueueFigures], float]
    ) -> GaugeMetricFamily:
        return _build_gauges(name, text, "source", {one.source: read(one) for one in queues})

    def count_seconds(begin: datetime | None, end: datetime | None) -> float:
        return 0.0 if begin is None or end is None else max(0.0, (end - begin).total_seconds())

    queues = list(queues)
    yield build_per_source("queue_ready", "Runs that can start", lambda one: one.ready)
    yield build_per_source(
        "queue_waiting", "Runs that wait for their retry", lambda one: one.waiting
    )
    yield build_per_source("leases", "Runs that workers process", lambda one: one.leased)
    yield build_per_source(
        "queue_oldest_age_seconds",
        "Age of the oldest run that can start",
        lambda one: count_seconds(one.oldest_ready_at, now),
    )
    yield build_per_source("queue_retry_tokens", "Retry budget", lambda one: one.retry_tokens)
    yield build_per_source(
        "queue_gate_seconds",
        "Time until the source accepts requests again",
        lambda one: count_seconds(now, one.closed_until),
    )
