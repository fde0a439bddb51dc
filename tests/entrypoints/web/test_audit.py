"""The pages of the audit log, over HTTP."""

import re

import httpx
import pytest
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    download_work,
    unreachable_error,
)

from tileferry.domain.runs import Run
from tileferry.entrypoints.web import audit


@pytest.fixture
def failed_run(web_work: ControlPlane) -> Run:
    """Return a run that has failed once, so that a decision about it is in the log."""
    web_work.submit_run(download_work("F1", "audited"))
    (run,) = web_work.queue.claim(W1, limit=1, lease=LEASE, sources=["audited"])
    web_work.control.process_error(run, unreachable_error())
    web_work.control.cancel(run.run_id, reason="<script>alert(1)</script>", by="ann")
    return run


def list_sequences(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="e(\d+)"', page)]


def test_tail_is_paged_and_filtered(
    client: httpx.Client, failed_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_ROWS_MAX", 2)
    page = client.get("/audit").text
    newest = list_sequences(page)
    assert newest == sorted(newest, reverse=True)
    assert "<script>alert" not in page
    (older,) = re.findall(r'href="/audit\?(before=\d+)"', page)
    assert list_sequences(client.get(f"/audit?{older}").text) == [newest[1] - 1, newest[1] - 2]
    filtered = client.get("/audit?event=state_change").text
    assert "discovered" in filtered or "processing" in filtered
    assert failed_run.run_id in filtered
    monkeypatch.setattr(audit, "_SCANNED_MAX", 1)
    nothing = client.get("/audit?event=idempotency").text
    assert "No matching entry on this page" in nothing
    assert "The log has no older entries." in client.get("/audit?before=1").text
    assert list_sequences(client.get("/audit?before=2").text) == [1]


@pytest.mark.parametrize("query", ["category=x", "event=x", "before=x", "about=%00"])
def test_invalid_filters_are_explained(client: httpx.Client, query: str) -> None:
    assert client.get(f"/audit?{query}").status_code == 400


def test_decision_is_replayed_step_by_step(client: httpx.Client, failed_run: Run) -> None:
    answer = client.get("/audit", params={"about": failed_run.run_id})
    assert answer.headers["location"] == f"/audit/replay?about={failed_run.run_id}"
    page = client.get(answer.headers["location"]).text
    assert "recomputed, all identical" in page
    for step in ("from", "policy", "decided"):
        assert f"<dt>{step}</dt>" in page
    assert "<script>alert" not in page
    assert client.get("/audit/replay?about=none").status_code == 404
    assert client.get("/audit/replay").status_code == 400


def test_long_replay_is_bounded(
    client: httpx.Client, failed_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_REPLAYED_MAX", 1)
    assert "older ones are left out" in client.get(f"/audit/replay?about={failed_run.run_id}").text


@pytest.mark.usefixtures("failed_run")
def test_log_is_verified(client: httpx.Client) -> None:
    with client.stream("GET", "/live/audit-verify") as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        assert "intact" in next(line for line in lines if "Store this hash" in line)
    page = client.get("/audit/verify").text
    assert re.search(r"<code>\d+:[0-9a-f]{64}</code>", page)
