"""``worker --listen``: a real Prometheus scrapes it, and one of our alerts fires."""

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from support.download_operator import AREA, FLIGHT, DownloadOperator, wait_until

RULES = Path(__file__).parents[2] / "deploy/prometheus/alerts.yml"
PROMETHEUS = shutil.which("prometheus")


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read(url: str) -> httpx.Response | None:
    try:
        return httpx.get(url, trust_env=False)
    except httpx.HTTPError:
        return None


@contextmanager
def run_prometheus(folder: Path, target: str) -> Iterator[str]:
    """Run Prometheus with our rules, but without their patience."""
    assert PROMETHEUS is not None
    port = find_free_port()
    rules = re.sub(r"\n +for: .*", "", RULES.read_text(encoding="utf-8"))
    (folder / "alerts.yml").write_text(rules, encoding="utf-8")
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "200ms"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "tileferry", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    command = [
        PROMETHEUS,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, cwd=folder)  # noqa: S603  # installed here
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def list_firing(prometheus: str) -> set[str]:
    answer = read(f"{prometheus}/api/v1/alerts")
    is_ready = answer is not None and answer.status_code == 200
    found = answer.json()["data"]["alerts"] if answer is not None and is_ready else []
    return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
def test_prometheus_scrapes_a_worker_and_an_alert_fires(
    operator: DownloadOperator, tmp_path: Path
) -> None:
    queued = operator.run_in_process("runs", "submit", "download", *AREA, *FLIGHT)
    assert queued.code == 0, queued.err
    with psycopg.connect(operator.database_url) as connection:
        connection.execute("UPDATE runs SET submitted_date = now() - interval '2 hours'")
    target = f"127.0.0.1:{find_free_port()}"
    # This worker processes no downloads, so that the run is stuck.
    options = ("--kind", "upload_flight", "--listen", target)
    with (
        run_prometheus(tmp_path, target) as prometheus,
        operator.start("worker", *options) as worker,
    ):
        wait_until(lambda: "TileferryQueueStuck" in list_firing(prometheus), "the alert")
        wait_until(lambda: list_firing(prometheus) == {"TileferryQueueStuck"}, "no other alert")
        ready = read(f"http://{target}/readyz")
        assert ready is not None
        assert (ready.status_code, ready.text) == (200, "ok\n")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait().code == 0


def test_worker_does_not_listen_to_other_machines(operator: DownloadOperator) -> None:
    ran = operator.run_in_process("worker", "--until-idle", "--listen", "0.0.0.0:9464")
    assert (ran.code, "no token and no TLS" in ran.err) == (4, True)
