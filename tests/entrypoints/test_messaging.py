"""NATS and telemetry, selected in the configuration."""

import builtins
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from opentelemetry import trace
from support.managers import RetryBench
from support.nats_server import NatsServer, run_nats_server
from support.operator import run_in_process

from tileferry.adapters.filesystem import find_waiting
from tileferry.adapters.memory import ManualClock
from tileferry.application.audit_reader import AuditReader
from tileferry.domain.errors import (
    InvalidValueError,
    MessagingError,
    MisuseError,
    RetryError,
)
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints import messaging
from tileferry.entrypoints.audit_factories import describe_destination
from tileferry.entrypoints.config import (
    AuditConfig,
    C11Config,
    Config,
    IdempotencyConfig,
    NatsConfig,
    Secret,
    SinkName,
    StoreName,
    TelemetryConfig,
    load_config,
)
from tileferry.entrypoints.config.audit import ListenAddress
from tileferry.entrypoints.config.retry_overrides import CategoryConfig, RetryConfig
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.metrics import Metrics

CANARY = "canary-5f1c"
_QUICK = CategoryConfig(max_attempts=2, base_delay=0)
OpenContainer = Callable[..., Container]


@pytest.fixture
def config(database_url: str, nats_server: NatsServer, nats_name: str, tmp_path: Path) -> Config:
    return Config(
        database_url=Secret(database_url),
        c11=C11Config(cache_root=tmp_path / "cache"),
        retry=RetryConfig(KV_GET=_QUICK, NATS_CONNECT=_QUICK),
        nats=NatsConfig(
            url=Secret(nats_server.url),
            audit_stream=nats_name,
            audit_subject=f"audit.{nats_name}",
            idempotency_bucket=nats_name,
        ),
    )


@pytest.fixture
def open_container() -> Iterator[OpenContainer]:
    opened: list[Container] = []

    def create(config: Config, **options: Any) -> Container:
        opened.append(Container(config=config, **options))
        return opened[-1]

    yield create
    for container in opened:
        container.shutdown_resources()


def raise_timeout() -> None:
    raise TimeoutError("too slow")


def fail_twice(container: Container) -> None:
    with pytest.raises(RetryError):
        container.retry_manager().execute_with_retry_sync(
            RetryCategory.KV_GET, "Get", raise_timeout
        )


def read_kinds(reader: AuditReader) -> list[str]:
    return [json.loads(entry.body)["event_type"] for entry in reader.iter_entries()]


@pytest.mark.usefixtures("database")
def test_audit_events_go_to_postgres_and_nats(
    config: Config, open_container: OpenContainer
) -> None:
    both = AuditConfig(sinks=[SinkName.POSTGRES, SinkName.NATS])
    container = open_container(evolve(config, audit=both))
    fail_twice(container)
    kinds = ["retry_attempt", "retry_exhausted"]
    assert read_kinds(container.audit_reader()) == kinds  # of Postgres
    log = container.nats_audit_log()
    assert [json.loads(entry.body)["event_type"] for entry in log.iter_entries()] == kinds


@pytest.mark.usefixtures("database")
def test_audit_log_in_nats_alone_is_read_verified_and_counted_there(
    config: Config, open_container: OpenContainer
) -> None:
    container = open_container(evolve(config, audit=AuditConfig(sinks=[SinkName.NATS])))
    fail_twice(container)
    reader = container.audit_reader()
    assert read_kinds(reader) == ["retry_attempt", "retry_exhausted"]
    assert reader.verify().intact
    assert container.audit_log().read_head().sequence == 0


def test_outbox_belongs_to_one_destination_whatever_its_credentials(config: Config) -> None:
    def describe(name: SinkName, **changes: Any) -> str:
        return describe_destination(evolve(config, **changes), name)

    urls = ["postgresql://a:x@db:5432/one?sslmode=require", "postgresql://b:y@DB:5432/one"]
    one, same = (describe(SinkName.POSTGRES, database_url=Secret(url)) for url in urls)
    assert one == same
    others = [
        "postgresql://a@db:5433/one",
        "postgresql://a@db:5432/two",
        "postgresql://a@/one?host=/a&port=1",
        "postgresql://a@/one?host=/b&port=1",
    ]
    found = {describe(SinkName.POSTGRES, database_url=Secret(url)) for url in others}
    found |= {one, describe(SinkName.POSTGRES, database_url=None), describe(SinkName.NATS)}
    nats = NatsConfig(url=Secret(f"nats://u:{CANARY}@h:1,nats://v:{CANARY}@g:1"))
    found |= {describe(SinkName.NATS, nats=nats), describe(SinkName.JSONL)}
    assert len(found) == 9
    assert CANARY not in "".join(found)


@pytest.mark.usefixtures("database")
def test_idempotency_keys_are_stored_in_nats(config: Config, open_container: OpenContainer) -> None:
    chosen = evolve(config, idempotency=IdempotencyConfig(store=StoreName.NATS))
    effects: list[int] = []

    def work() -> int:
        effects.append(1)
        return 41

    for _ in range(2):  # two processes share the bucket
        manager = open_container(chosen).retry_manager()
        result = manager.execute_with_retry_sync(
            RetryCategory.KV_PUT, "Put", work, idempotency_key="k"
        )
        assert result == 41
    assert effects == [1]
    plain = open_container(config)
    assert plain.idempotency_manager().check_idempotency_sync("k") is None  # not in Postgres


@pytest.mark.usefixtures("database")
def test_keep_failures_is_a_setting(config: Config, open_container: OpenContainer) -> None:
    assert not open_container(config).idempotency_manager().keep_failures
    chosen = evolve(config, idempotency=IdempotencyConfig(keep_failures=True))
    assert open_container(chosen).idempotency_manager().keep_failures


@pytest.mark.usefixtures("database")
def test_nats_server_that_is_away_does_not_stop_work_or_show_its_password(
    config: Config, open_container: OpenContainer, caplog: pytest.LogCaptureFixture
) -> None:
    away = NatsConfig(url=Secret(f"nats://user:{CANARY}@127.0.0.1:1"))
    both = AuditConfig(sinks=[SinkName.POSTGRES, SinkName.NATS])
    container = open_container(
        evolve(config, audit=both, nats=away, idempotency=IdempotencyConfig(store=StoreName.NATS))
    )
    fail_twice(container)
    kinds = read_kinds(container.audit_reader())
    assert kinds.count("retry_exhausted") == 2  # of the call, and of the connection
    assert container.audit_trail().failures == {}
    (waiting,) = find_waiting(config.c11.cache_root)
    assert (waiting.events, waiting.lost) == (2, None)
    assert "cannot connect" in caplog.text
    with pytest.raises(MessagingError):  # invariant 11: nothing runs without the store
        container.retry_manager().execute_with_retry_sync(
            RetryCategory.KV_PUT, "Put", pytest.fail, idempotency_key="k", result_type=int
        )
    assert CANARY not in caplog.text + repr(container.nats_connection()) + repr(container.config())
    kept = [path for path in config.c11.cache_root.rglob("*") if path.is_file()]
    assert kept
    assert CANARY not in "".join(f"{path}{path.read_text()}" for path in kept)


def test_expired_keys_in_nats_are_looked_for_once_an_hour() -> None:
    class Records:
        calls = 0

        def forget_expired(self, *, limit: int) -> int:
            self.calls += 1
            return limit

    records, clock = Records(), ManualClock()
    expiry = messaging.HourlyExpiry(records, clock)
    clock.advance(1)
    assert [expiry.forget_expired(limit=5) for _ in range(3)] == [5, 0, 0]
    clock.advance(3_600)
    assert expiry.forget_expired(limit=5) == 5
    assert records.calls == 2


# Settings


def test_nats_without_address_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for setting in (
        '[tileferry.audit]\nsinks = ["nats"]',
        '[tileferry.idempotency]\nstore = "nats"',
    ):
        Path("tileferry.toml").write_text(setting)
        with pytest.raises(InvalidValueError, match=r"nats\.url: is not set, but audit\.sinks or"):
            load_config()
    monkeypatch.setenv("TILEFERRY_NATS_URL", "nats://127.0.0.1:4222")
    assert load_config().uses_nats


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        (f'[tileferry.nats]\nurl = "nats://u:{CANARY}@h"', True),
        ('[tileferry.nats]\nurl = "nats://h"', False),
    ],
)
def test_credentials_in_a_file_that_others_can_read_are_rejected(
    tmp_path: Path, line: str, *, refused: bool
) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_text(line)
    file.chmod(0o644)
    if not refused:
        load_config(file)
        return
    with pytest.raises(InvalidValueError, match=r"nats\.url: is in .*chmod 600") as error:
        load_config(file)
    assert CANARY not in str(error.value)
    file.chmod(0o600)
    assert CANARY not in repr(load_config(file))


@pytest.mark.parametrize("url", [f"http://u:{CANARY}@h", f"nats://u:{CANARY}@h:99999"])
def test_invalid_nats_address_names_the_setting_only(
    url: str, open_container: OpenContainer
) -> None:
    config = Config(nats=NatsConfig(url=Secret(url)), audit=AuditConfig(sinks=[SinkName.NATS]))
    with pytest.raises(InvalidValueError, match=r"nats\.url") as error:
        open_container(config).nats_connection()
    assert CANARY not in str(error.value)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real, retry = builtins.__import__, RetryBench().create_manager()

    def refuse(name: str, *args: Any, **named: Any) -> Any:
        if name.startswith(("tileferry.adapters.nats", "prometheus_client", "opentelemetry")):
            raise ModuleNotFoundError(f"No module named {name!r}", name="missing")
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    config = Config(
        nats=NatsConfig(url="nats://h"),
        telemetry=TelemetryConfig(opentelemetry=True, prometheus_listen="127.0.0.1:0"),
    )
    for needed, make in (
        ("nats", lambda: next(messaging.open_nats_connection(config, retry))),
        ("telemetry", lambda: messaging.build_telemetry(config, None)),
        ("telemetry", messaging.check_prometheus),
    ):
        with pytest.raises(MisuseError, match=rf"pip install 'tileferry\[{needed}\]'"):
            make()


@pytest.mark.parametrize("text", ["9464", ":9464", "host:", "host:70000", "a b:1", "host:x"])
def test_invalid_listen_address_is_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"telemetry\.prometheus_listen: is not an address"):
        TelemetryConfig(prometheus_listen=text)
    assert ListenAddress.parse("[::1]:9464", field="x") == ListenAddress(host="::1", port=9464)


# Telemetry


@pytest.mark.usefixtures("database")
def test_calls_are_counted_for_prometheus(config: Config, open_container: OpenContainer) -> None:
    metrics = Metrics("0001")
    chosen = evolve(config, telemetry=TelemetryConfig(opentelemetry=True))
    fail_twice(open_container(chosen, in_run=True, metrics=metrics))
    labels = {"category": "RETRY_KV_GET", "outcome": "failed"}
    assert metrics.registry.get_sample_value("tileferry_retry_calls_total", labels) == 1


@pytest.mark.usefixtures("database")
def test_short_commands_have_no_metrics(config: Config, open_container: OpenContainer) -> None:
    chosen = evolve(config, telemetry=TelemetryConfig(prometheus_listen="127.0.0.1:9464"))
    assert open_container(chosen).telemetry() is None
    spans = open_container(evolve(config, telemetry=TelemetryConfig(opentelemetry=True)))
    assert spans.telemetry() is spans.retry_manager().telemetry is not None


def test_opentelemetry_sdk_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    assert not messaging.has_opentelemetry_sdk()
    monkeypatch.setattr(trace, "get_tracer_provider", object)
    assert messaging.has_opentelemetry_sdk()


# Doctor


@pytest.mark.usefixtures("database")
def test_doctor_checks_nats(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_doctor() -> dict[str, dict[str, Any]]:
        ran = run_in_process("doctor", "--json")
        assert CANARY not in ran.out + ran.err
        return {finding["subject"]: finding for finding in ran.json["findings"]}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", database_url)
    monkeypatch.setenv("TILEFERRY_AUDIT_SINKS", "postgres:nats")
    monkeypatch.setenv("TILEFERRY_TELEMETRY_PROMETHEUS_LISTEN", "127.0.0.1:9464")
    login = f"authorization {{ user: u, password: {CANARY} }}\n"
    with run_nats_server(tmp_path / "server", login) as server:
        monkeypatch.setenv("TILEFERRY_NATS_URL", server.url.replace("//", f"//u:{CANARY}@"))
        found = run_doctor()
        assert (found["NATS"]["verdict"], found["NATS"]["found"]) == (
            "ok",
            f"{server.url}, JetStream enabled",
        )
        assert "serve Prometheus metrics on 127.0.0.1:9464" in found["telemetry"]["found"]
    monkeypatch.setenv("TILEFERRY_TELEMETRY_PROMETHEUS_LISTEN", "0.0.0.0:9464")
    found = run_doctor()
    assert "no token and no TLS" in found["telemetry"]["found"]
    gone = found["NATS"]
    assert gone["verdict"] == "failed"
    assert "cannot connect" in gone["found"]
