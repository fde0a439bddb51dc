"""Metrics: what is documented exists, what exists is documented, and reading it is cheap."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from attrs import define, evolve, field
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.raw_partitions import TILES, create_report

from tileferry.adapters.telemetry.state import StateMetrics
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.figures import DatabaseFigures, QueueFigures
from tileferry.application.ports.progress import (
    BatchAnswered,
    CacheAwaited,
    DatabaseAwaited,
    DownloadFinished,
    DownloadGivenUp,
    ItemsProcessed,
    PaceChanged,
    PassScheduled,
    ProgressEvent,
    QueueReached,
    RequestHeld,
    RunFinished,
    RunStarted,
    Task,
    TileProcessed,
    UploadFinished,
)
from tileferry.application.ports.retries import CallInfo
from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.errors import DatabaseError, InvalidStateError, NotPermittedError
from tileferry.domain.retry import HoldRule, Pace, RetryReason
from tileferry.domain.runs import RunId, RunKind, RunStatus
from tileferry.domain.tiles import (
    PerTileStatus,
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
)
from tileferry.entrypoints.config import C11Config, Config
from tileferry.entrypoints.metrics import Metrics
from tileferry.entrypoints.metrics_server import parse_listen, serve_metrics

PAGE = (Path(__file__).parents[2] / "_docs/metrics.md").read_text(encoding="utf-8")
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
QUEUE = QueueFigures(
    source="satellite",
    ready=3,
    waiting=2,
    leased=1,
    oldest_ready_at=NOW - timedelta(hours=2),
    retry_tokens=9.5,
    closed_until=NOW + timedelta(seconds=30),
)
FIGURES = DatabaseFigures(
    now=NOW,
    latency_s=0.001,
    schema_revision="0015",
    runs={"passed": 7},
    partitions={"failed": 1},
    queues=[QUEUE],
    workers=1,
    expired_leases=0,
    tiles=20,
    tile_bytes=2_000,
    pending_uploads=4,
    giveups=1,
    audit_sequence=57,
    audit_at=NOW,
    verdict_at=None,
)


@define
class FakeReader:
    figures: DatabaseFigures | None = FIGURES
    reads: int = 0

    def read(self) -> DatabaseFigures:
        self.reads += 1
        if self.figures is None:
            raise DatabaseError(problem="away", remedy="wait")
        return self.figures


@define
class Site:
    metrics: Metrics
    reader: FakeReader
    seen: list[ProgressEvent] = field(factory=list)

    def scrape(self) -> dict[str, Metric]:
        text = self.metrics.answer("/metrics").content.decode()
        return {one.name: one for one in text_string_to_metric_families(text)}

    def get(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(Metrics("0015"), FakeReader())
    config = Config(c11=C11Config(cache_root=tmp_path / "cache"))
    segments = tmp_path / "cache/.c6/segments"
    segments.mkdir(parents=True)
    (segments / "1.seg").write_bytes(b"x" * 500)
    outbox = tmp_path / "cache/.c11/audit-outbox/nats-1"
    outbox.mkdir(parents=True)
    (outbox / "queue").write_bytes(b"x" * 70)
    site.metrics.read_state(site.reader, config)
    site.metrics.listen_for(site.seen.append)
    return site


def tell_everything(site: Site) -> None:
    """Let everything happen that is counted."""
    run, kind = RunId("r"), RunKind.ACQUIRE_PARTITION
    answer = PerTileStatus(tile_id=TILES[0], status=TileUploadStatus.ACCEPTED)
    upload = UploadBatchReport(
        flight_id="F1", outcome=UploadOutcome.SUCCESS, per_tile_status=(answer,)
    )
    events: list[ProgressEvent] = [
        TileProcessed(TileFate.STORED, 1_000),
        BatchAnswered(answers=(answer,), size_bytes=50),
        DownloadFinished(report=create_report(1)),
        UploadFinished(report=upload),
        DownloadGivenUp(idle_s=1.0),
        PassScheduled(
            number=2,
            reason="x",
            rule=RetryReason.BACKOFF,
            tiles_left=1,
            delay_s=1.0,
            gives_up_in_s=9.0,
        ),
        RequestHeld(operation="x", rule=HoldRule.PACE, delay_s=2.0),
        PaceChanged(pace=Pace(concurrency_max=8)),
        RunStarted(run_id=run, kind=kind),
        RunFinished(run_id=run, kind=kind, status=RunStatus.PASSED, duration_s=3.0),
        CacheAwaited(problem="x"),
        DatabaseAwaited(delay_s=1.0, gives_up_in_s=2.0),
        QueueReached(is_reached=True),
        ItemsProcessed(task=Task.EXPORT),
    ]
    for event in events:
        site.metrics.events(event)
    assert site.seen == events
    call = site.metrics.calls.begin(CallInfo(category="API_REQUEST", operation="GET"))
    call.on_idempotency(next(iter(IdempotencyAction)))
    call.on_success(1)
    site.metrics.calls.failed_attempts.labels("API_REQUEST", "backoff").inc()
    site.metrics.calls.waited_seconds.labels("API_REQUEST").inc()


def test_every_metric_is_documented_and_every_documented_one_exists(site: Site) -> None:
    tell_everything(site)
    rows = PAGE.split("<!-- metrics -->")[1].split("<!-- end -->")[0].strip().splitlines()[2:]
    documented = {}
    for row in rows:
        name, kind, labels = [cell.strip() for cell in row.split("|")][1:4]
        key = name.strip("`").removesuffix("_total")
        documented[key] = (kind, set(re.findall(r"`(\w+)`", labels)))
    found = {
        name: (one.type, {label for sample in one.samples for label in sample.labels} - {"le"})
        for name, one in site.scrape().items()
        if name.startswith("tileferry_")
    }
    created = {name for name in found if name.endswith("_created")}
    assert {name: value for name, value in found.items() if name not in created} == documented


def test_state_is_read_once_in_five_seconds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    assert site.get("tileferry_queue_oldest_age_seconds", source="satellite") == 7_200
    assert site.get("tileferry_queue_gate_seconds", source="satellite") == 30
    assert site.get("tileferry_runs", status="failed") == 0
    assert site.get("tileferry_cache_bytes") == 500
    assert site.get("tileferry_audit_outbox_bytes", sink="nats-1") == 70
    assert site.get("tileferry_partition_last_verdict_timestamp_seconds") == 0
    assert site.reader.reads == 1
    now_s[0] += 5
    site.scrape()
    assert site.reader.reads == 2


def test_readiness_says_what_is_missing(site: Site) -> None:
    assert site.metrics.answer("/readyz").status == 200
    site.metrics.events(QueueReached(is_reached=False))
    assert site.metrics.answer("/readyz").content == b"the queue cannot be reached\n"
    site.metrics.check = lambda: "it is stopping"
    site.metrics.events(QueueReached(is_reached=True))
    assert site.metrics.answer("/readyz").content == b"it is stopping\n"
    assert isinstance(site.metrics.state, StateMetrics)
    site.reader.figures = evolve(FIGURES, schema_revision="0014")
    site.metrics.state._read_s = None
    assert site.metrics.answer("/readyz").content == b"the schema is at 0014, not 0015\n"
    site.reader.figures = None
    site.metrics.state._read_s = None
    gone = site.metrics.answer("/readyz")
    assert (gone.status, gone.content) == (503, b"the database does not answer\n")
    assert site.metrics.answer("/healthz").status == 200
    assert site.get("tileferry_database_up") == 0
    assert "tileferry_runs" not in site.scrape()


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serve_metrics(site.metrics, parse_listen("127.0.0.1:0")) as url:
        yield url


def test_endpoint_answers_this_machine_only(url: str, site: Site) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/metrics?x=1").headers["content-type"].startswith("text/plain")
        assert client.head("/healthz").status_code == 200
        assert client.get("/").status_code == 404
        assert client.post("/metrics").status_code == 501
        assert client.get("/metrics", headers={"Host": "evil.example"}).status_code == 421
    with (
        pytest.raises(InvalidStateError, match="cannot listen"),
        serve_metrics(site.metrics, parse_listen(url.removeprefix("http://"))),
    ):
        pass


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "[::]:9464", "10.0.0.1:9464"])
def test_other_machines_are_refused(address: str) -> None:
    with pytest.raises(NotPermittedError, match="no token and no TLS"):
        parse_listen(address)
