"""The parts fit together as the configuration says."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tileferry.adapters.filesystem import find_waiting
from tileferry.adapters.postgres import Database
from tileferry.domain.errors import RetryError
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.config import AuditConfig, C11Config, Config, LogConfig, Secret, SinkName
from tileferry.entrypoints.config.retry_overrides import CategoryConfig, RetryConfig
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.logs import log_to

QUICK = RetryConfig(KV_GET=CategoryConfig(max_attempts=2, base_delay=0))


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Config:
    return Config(
        database_url=Secret(database_url),
        retry=QUICK,
        audit=AuditConfig(
            sinks=[SinkName.POSTGRES, SinkName.JSONL, SinkName.LOG],
            jsonl_path=tmp_path / "logs" / "audit.jsonl",
        ),
    )


@pytest.fixture
def container(config: Config) -> Iterator[Container]:
    made = Container(config=config)
    yield made
    made.shutdown_resources()


def raise_timeout() -> None:
    raise TimeoutError("too slow")


def test_retry_events_reach_every_configured_sink(
    container: Container, config: Config, tmp_path: Path
) -> None:
    log = LogConfig(file=tmp_path / "log.jsonl")
    with (
        log_to(log, Console(file=StringIO())),
        pytest.raises(RetryError, match="gave up after 2 attempts"),
    ):
        container.retry_manager().execute_with_retry_sync(
            RetryCategory.KV_GET, "Get", raise_timeout
        )
    kinds = ["retry_attempt", "retry_exhausted"]
    entries = list(container.audit_log().iter_entries())
    assert [json.loads(entry.body)["event_type"] for entry in entries] == kinds
    assert config.audit.jsonl_path.read_bytes() == b"".join(e.body + b"\n" for e in entries)
    lines = [json.loads(line) for line in log.file.read_text("utf-8").splitlines()]
    records = [record for record in lines if record["kind"].startswith("audit.")]
    assert [record["kind"] for record in records] == [f"audit.{kind}" for kind in kinds]
    assert [*records[0]][:5] == ["timestamp", "level", "logger", "kind", "message"]
    assert [record["level"] for record in records] == ["WARNING", "ERROR"]


def test_result_and_event_share_one_transaction(container: Container) -> None:
    manager = container.retry_manager()

    def call() -> int:
        return manager.execute_with_retry_sync(
            RetryCategory.KV_PUT, "Put", lambda: 41, idempotency_key="k", result_type=int
        )

    assert (call(), call()) == (41, 41)
    bodies = [json.loads(entry.body) for entry in container.audit_log().iter_entries()]
    assert [body["action"] for body in bodies] == ["record", "hit"]
    assert container.idempotency_manager().store.audit_sink is container.audit_log()


def test_audit_log_stays_empty_without_postgres_sink(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    settings = AuditConfig(sinks=[SinkName.JSONL], jsonl_path=tmp_path / "audit.jsonl")
    container = Container(config=Config(database_url=Secret(database_url), audit=settings))
    try:
        container.retry_manager().execute_with_retry_sync(
            RetryCategory.KV_PUT, "Put", lambda: 1, idempotency_key="k", result_type=int
        )
        assert container.idempotency_manager().store.audit_sink is None
        assert container.audit_log().read_head().sequence == 0
        assert settings.jsonl_path.read_bytes().count(b"\n") == 1
    finally:
        container.shutdown_resources()
    assert database.check_server()


@pytest.mark.parametrize("fail_closed", [False, True])
def test_failing_sink_with_and_without_fail_closed(tmp_path: Path, *, fail_closed: bool) -> None:
    blocked = tmp_path / "audit.jsonl"
    blocked.mkdir()
    settings = AuditConfig(
        sinks=[SinkName.JSONL], jsonl_path=blocked, fail_closed=fail_closed, outbox_bytes=0
    )
    config = Config(
        database_url=Secret("postgresql://nobody@127.0.0.1:1/x"),
        retry=QUICK,
        audit=settings,
        c11=C11Config(cache_root=tmp_path / "cache"),
    )
    container = Container(config=config)
    manager = container.retry_manager()
    with pytest.raises(Exception, match="audit sink jsonl" if fail_closed else "gave up after 2"):
        manager.execute_with_retry_sync(RetryCategory.KV_GET, "Get", raise_timeout)
    lost = 1 if fail_closed else 2
    assert manager.audit.failures["jsonl"] == lost
    container.shutdown_resources()
    (waiting,) = find_waiting(tmp_path / "cache")
    assert waiting.lost is not None
    assert waiting.lost.events == lost
