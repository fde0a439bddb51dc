"""The pages of runs, over HTTP."""

import re
from collections.abc import Callable

import httpx
import pytest
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    acquire_work,
    download_work,
    partition_key,
)
from support.web_site import confirm_change, find_csrf_token, post_form

from tileferry.application.ports.work import RunFilter
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.runs import Run, RunProgress, RunStatus
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault
from tileferry.entrypoints.web import runs as runs_page

BROKEN = SatelliteProviderError(reason="<script>alert(1)</script>", fault=ProviderFault.UNREACHABLE)
Submit = Callable[..., list[Run]]


@pytest.fixture
def submit(web_work: ControlPlane) -> Submit:
    """Return a function that queues downloads of a source that only one test uses."""

    def submit_all(source: str, count: int) -> list[Run]:
        return [web_work.submit_run(download_work(f"F{n}", source)) for n in range(count)]

    return submit_all


def list_ids(page: str) -> list[str]:
    return re.findall(r'href="/runs/([^"?]+)"', page)


def test_runs_are_filtered_and_paged(
    client: httpx.Client, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run.run_id for run in submit("paged", 3)][::-1]
    monkeypatch.setattr(runs_page, "_ROWS_MAX", 2)
    first = client.get("/runs?source=paged").text
    assert list_ids(first) == runs[:2]
    (rest,) = re.findall(r'href="(/runs\?[^"]*after=[^"]*)"', first)
    second = client.get(rest.replace("&amp;", "&")).text
    assert list_ids(second) == runs[2:]
    assert "Next »" not in second
    assert list_ids(client.get("/runs?source=paged&text=/f1&status=discovered").text) == [runs[1]]
    assert "No run matches." in client.get("/runs?source=paged&kind=upload_flight").text
    assert "Searched the newest 100,000 runs" in client.get("/runs?text=zzz").text


@pytest.mark.parametrize(
    "query", ["status=new", "kind=x", "source=a/b", "text=%00", "after=x", "after=2026-01-01~a"]
)
def test_invalid_filters_are_explained(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/runs?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_run_shows_why_progress_and_escaped_errors(
    client: httpx.Client, web_work: ControlPlane, submit: Submit
) -> None:
    failing, moving = submit("story", 2)
    for run in web_work.queue.claim(W1, limit=2, lease=LEASE, sources=["story"]):
        if run.run_id == failing.run_id:
            web_work.control.process_error(run, BROKEN)
        else:
            progress = RunProgress(tiles_done=3, tiles_total=12, elapsed_s=3.0, waiting="a token")
            web_work.queue.renew([run], lease=LEASE, progress={run.run_id: progress})
    page = client.get("/runs?source=story").text
    assert '<progress max="12" value="3"' in page
    assert "waiting: a token" in page
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    why = client.get(f"/runs/{failing.run_id}").text
    assert "Attempts" in why
    assert "<script>alert" not in why
    assert "new → discovered" in why  # from the audit log
    assert "has been processing it since" in client.get(f"/runs/{moving.run_id}").text
    with client.stream("GET", f"/live/run?run_id={moving.run_id}") as stream:
        assert "3 of 12 tiles" in next(line for line in stream.iter_lines() if "data:" in line)


def test_unknown_run_is_404(client: httpx.Client) -> None:
    answer = client.get("/runs/none")
    assert answer.status_code == 404
    assert "list the runs with <code>tileferry runs list</code>" in answer.text
    assert client.get("/runs/..%2F..%2Fetc").status_code in {400, 404}


def test_one_run_is_cancelled_and_retried_with_reasons(
    client: httpx.Client, web_work: ControlPlane, submit: Submit
) -> None:
    (run,) = submit("one", 1)
    for path, text in (("/runs/cancel", "1 run cancelled."), ("/runs/retry", "1 run due now.")):
        done = confirm_change(client, path, {"run_id": run.run_id}, reason="wrong area")
        assert text in done.text
    found = web_work.get_run(run)
    assert (found.status, found.next_retry_at is None) == (RunStatus.ERROR, False)
    log = client.get(f"/runs/{run.run_id}").text
    assert log.count("by operator tester@host): wrong area") == 2


def test_ended_run_offers_no_change(
    client: httpx.Client, web_work: ControlPlane, submit: Submit
) -> None:
    (run,) = submit("ended", 1)
    web_work.control.cancel(run.run_id, reason="wrong", by="ann")
    preview = post_form(client, "/runs/cancel", {"run_id": run.run_id})
    assert "Nothing would change." in preview.text
    assert "plan_hash" not in preview.text


def test_bulk_cancel_needs_the_typed_count_and_an_unchanged_plan(
    client: httpx.Client, web_work: ControlPlane, submit: Submit
) -> None:
    runs = submit("bulk", 11)
    filters = {"source": "bulk", "status": "", "kind": "", "text": ""}
    wrong = confirm_change(client, "/runs/cancel", filters, reason="storm", confirmed_count="10")
    assert wrong.status_code == 409
    assert "Nothing was changed: this affects 11 runs, not 10." in wrong.text
    assert "Type 11 to confirm" in wrong.text  # the form is there again
    preview = post_form(client, "/runs/cancel", filters)
    assert "Type 11 to confirm" in preview.text
    web_work.control.cancel(runs[0].run_id, reason="meanwhile", by="ann")
    outdated = {**filters, "plan_hash": "0", "reason": "storm", "confirmed_count": "11"}
    outdated["csrf_token"] = find_csrf_token(preview.text)
    assert client.post("/runs/cancel/apply", data=outdated).status_code == 409
    done = confirm_change(client, "/runs/cancel", filters, reason="storm", confirmed_count="10")
    assert "10 runs cancelled." in done.text
    left = web_work.reader.list_runs(RunFilter(source="bulk"), limit=20)
    assert {run.status for run in left} == {RunStatus.ERROR}


def test_bulk_action_is_bounded(
    client: httpx.Client, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit("many", 4)
    monkeypatch.setattr(runs_page, "_BULK_MAX", 3)
    monkeypatch.setattr(runs_page, "_PREVIEWED_MAX", 2)
    preview = post_form(client, "/runs/cancel", {"source": "many"}).text
    assert "Cancel 3 runs" in preview
    assert "Limited to the newest 3 runs" in preview
    assert "The table shows the first 2." in preview


def test_preview_says_that_the_partition_fails(
    client: httpx.Client, web_work: ControlPlane
) -> None:
    key = partition_key(source="effects")
    (partition,) = web_work.partitions.enqueue([acquire_work(key)], actor=Actor.OPERATOR)
    run_id = partition.last_run_id
    assert "its partition fails" in post_form(client, "/runs/cancel", {"run_id": run_id}).text
    (held,) = web_work.queue.claim(W1, limit=1, lease=LEASE, sources=["effects"])
    preview = post_form(client, "/runs/cancel", {"run_id": held.run_id}).text
    assert "worker w1 stops within seconds" in preview
