"""Metrics and health of a process: the pages ``/metrics``, ``/healthz`` and ``/readyz``."""

from collections.abc import Callable
from pathlib import Path

from attrs import define, field
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tileferry.adapters.filesystem.usage import measure_outboxes, measure_segments
from tileferry.adapters.system import SystemDisk
from tileferry.adapters.telemetry.counters import PrometheusCounters
from tileferry.adapters.telemetry.events import EventMetrics
from tileferry.adapters.telemetry.http_endpoint import Answer
from tileferry.adapters.telemetry.state import StateMetrics
from tileferry.application.ports.figures import FigureReader, StorageFigures
from tileferry.application.ports.progress import ProgressListener
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.factories import get_budget_bytes, get_reserve_bytes
from tileferry.migrations import REVISIONS

PATHS = ("/metrics", "/healthz", "/readyz")


@define(eq=False)
class Metrics:
    """The counters of a process, and the state that it reads when it is scraped."""

    needed_revision: str = REVISIONS[-1]
    check: Callable[[], str | None] = lambda: None
    """Returns why the process does not accept work, if so."""
    registry: CollectorRegistry = field(factory=CollectorRegistry, init=False)
    calls: PrometheusCounters = field(init=False)
    events: EventMetrics = field(init=False)
    state: StateMetrics | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.calls = PrometheusCounters(self.registry)
        self.events = EventMetrics(self.registry)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def listen_for(self, listener: ProgressListener) -> ProgressListener:
        """Return a listener that counts events, and passes them on."""
        self.events.listener = listener
        return self.events

    def read_state(self, reader: FigureReader, config: Config) -> None:
        """Let scrapes read the state of the installation."""
        self.state = StateMetrics(reader, lambda: measure_storage(config))
        self.registry.register(self.state)

    def answer(self, path: str) -> Answer:
        """Return the answer to a request."""
        match path:
            case "/metrics":
                return Answer(
                    status=200,
                    content=generate_latest(self.registry),
                    content_type=CONTENT_TYPE_PLAIN_0_0_4,
                )
            case "/healthz":
                return Answer(status=200, content=b"ok\n")
            case "/readyz":
                problem = self._find_problem()
                return Answer(
                    status=200 if problem is None else 503, content=f"{problem or 'ok'}\n".encode()
                )
            case _:
                return Answer(status=404, content=b"try /metrics, /healthz or /readyz\n")

    def _find_problem(self) -> str | None:
        if self.state is not None:
            figures = self.state.refresh()
            if figures is None:
                return "the database does not answer"
            if figures.schema_revision != self.needed_revision:
                return f"the schema is at {figures.schema_revision}, not {self.needed_revision}"
        if not self.events.is_queue_reached:
            return "the queue cannot be reached"
        return self.check()


def measure_storage(config: Config) -> StorageFigures:
    """Return how full the cache and its disk are."""
    root = config.c11.cache_root
    disk = SystemDisk(_find_existing(root))
    return StorageFigures(
        cache_bytes=measure_segments(root),
        budget_bytes=get_budget_bytes(config, disk),
        free_bytes=disk.free_bytes(),
        reserve_bytes=get_reserve_bytes(config, disk),
        outbox_bytes=measure_outboxes(root),
    )


def _find_existing(path: Path) -> Path:
    """Return the nearest existing folder: the cache may not have been created yet."""
    whole = path.absolute()
    return next(place for place in (whole, *whole.parents) if place.is_dir())
