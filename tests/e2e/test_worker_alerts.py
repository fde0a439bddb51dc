"""A worker evaluates alerts while it works: log, audit, doctor and webhook."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.audit_events import create_call_events
from support.download_operator import DownloadOperator, wait_until
from support.provider import API_KEY, RunningProvider

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.retry import Retryable


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook that refuses the first delivery."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(503 if len(bodies) == 1 else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook/canary", bodies
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def operator(
    tmp_path: Path,
    database_url: str,
    reference_provider: RunningProvider,
    hook: tuple[str, list[dict[str, Any]]],
) -> DownloadOperator:
    return DownloadOperator(
        tmp_path,
        database_url,
        reference_provider.url,
        {
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
            "TILEFERRY_AUDIT_ALERT_RETRIES_PER_MINUTE": "30",
            "TILEFERRY_AUDIT_ALERT_WINDOW_S": "8",
            "TILEFERRY_AUDIT_ALERT_WEBHOOK_URL": hook[0],
            "TILEFERRY_WORKER_SWEEP_S": "0.2",
            "TILEFERRY_RETRY_API_REQUEST_BASE_DELAY": "0.05",
        },
    )


def store_retries(database: Database, count: int) -> None:
    """Store retries of another process."""
    now_s = datetime.now(UTC).timestamp()
    for number in range(count):
        clock = ManualClock(now_s)
        events = create_call_events([Retryable()], clock=clock, key=f"k{number}")
        PostgresAuditLog(database=database).emit(events[:1])


def test_worker_announces_an_alert_once_and_its_end(
    operator: DownloadOperator,
    database: Database,
    hook: tuple[str, list[dict[str, Any]]],
) -> None:
    """Eleven retries in a window of 8 s are more than 30 per minute; later there are none."""
    bodies, ready = hook[1], operator.home / "ready"
    with operator.start("worker", "--ready-file", str(ready)) as worker:
        wait_until(ready.exists, "the start of the worker")
        store_retries(database, 11)
        wait_until(lambda: len(bodies) >= 2, "the alert")
        found = operator.run_in_process("doctor", "--json").json["findings"]
        (alert,) = [one for one in found if one["subject"] == "alerts"]
        assert alert["verdict"] == "warning"
        assert "RETRY_API_REQUEST: 11 retries in 8 s, limit 30 per minute" in alert["found"]
        wait_until(lambda: len(bodies) >= 3, "the end of the alert")
        worker.process.terminate()
        ended = worker.wait()
    assert ended.code == 0, ended.err
    assert [body["state"] for body in bodies] == ["raised", "raised", "cleared"]  # one was refused
    tail = operator.run_in_process("audit", "tail", "--event-type", "retry_alert", "--json").json
    assert [entry["event"]["state"] for entry in tail["entries"]] == ["raised", "cleared"]
    kinds = [line["kind"] for line in operator.read_log()]
    assert (kinds.count("alert.raised"), kinds.count("alert.cleared")) == (1, 1)
    (checked,) = [
        one
        for one in operator.run_in_process("doctor", "--json").json["findings"]
        if one["subject"] == "alerts"
    ]
    assert (checked["verdict"], checked["found"]) == ("ok", "none")
    assert b"hook/canary" not in operator.read_all_files()
    assert "hook/canary" not in operator.run_in_process("config", "show").out


def test_unsafe_webhook_is_rejected_by_doctor_and_worker(operator: DownloadOperator) -> None:
    operator.settings["TILEFERRY_AUDIT_ALERT_WEBHOOK_URL"] = "http://hooks.example/canary"
    for command in ("worker", "doctor"):
        ran = operator.run_in_process(command)
        assert ran.code == 2, ran.err
        said = ran.out + ran.err
        assert "audit.alert_webhook_url: would send alerts over plain http" in said
        assert "canary" not in said


def test_retried_run_is_counted_and_raises_an_alert(
    operator: DownloadOperator, reference_provider: RunningProvider
) -> None:
    """A run's retries are events of their category, like those of calls."""
    operator.settings |= {
        "TILEFERRY_C11_MAX_5XX_RETRIES": "0",
        "TILEFERRY_WORKER_INITIAL_BACKOFF_S": "3600",
    }
    area = ("--bbox", "36.0,50.0,36.02,50.02", "--zoom", "14", "--sector", "stable_rear")
    submitted = operator.run_in_process("runs", "submit", "download", *area, "--flight", "F1")
    assert submitted.code == 0, submitted.err
    reference_provider.set_faults({"fault": "503"})
    try:
        operator.run_in_process("worker", "--until-idle")
    finally:
        reference_provider.reset()
    ran = operator.run_in_process("audit", "stats", "--alert-rate", "0/min", "--json")
    assert ran.code == 3, ran.err
    assert ran.json["policies"]["RUN"]["category"] == "RETRY_EXECUTION_INTENT"
    assert ran.json["policies"]["RUN"]["retries"] == 1
    alerts = [alert["category"] for alert in ran.json["alerts"]]
    assert "RETRY_EXECUTION_INTENT" in alerts
