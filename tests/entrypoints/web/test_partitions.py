"""The pages of partitions, over HTTP."""

from collections.abc import Callable

import httpx
import pytest
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    acquire_work,
    create_sealed,
    partition_key,
)
from support.web_site import confirm_change, post_form

from tileferry.domain.partitions import PartitionKey, PartitionStatus
from tileferry.domain.runs import Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import Shape
from tileferry.entrypoints.web import partition_changes, partitions

HOSTILE = "too few tiles <script>alert(1)</script>"
Enqueue = Callable[..., list[PartitionKey]]
AREA = {"bbox": "2.0,48.0,2.1,48.1", "zoom": "15", "sector": "stable_rear"}


@pytest.fixture
def enqueue(web_work: ControlPlane) -> Enqueue:
    """Return a function that makes partitions of a source that only one test uses."""

    def enqueue_days(source: str, *outcomes: VerdictOutcome | None) -> list[PartitionKey]:
        keys = [partition_key(day, source=source) for day in range(1, len(outcomes) + 1)]
        web_work.partitions.enqueue([acquire_work(key) for key in keys], actor=Actor.OPERATOR)
        for run in web_work.queue.claim(W1, limit=99, lease=LEASE, sources=[source]):
            key = PartitionKey.parse("/".join(str(run.dedupe_key).split("/")[1:5]))
            outcome = outcomes[key.logical_date.day - 1]
            if outcome is None:
                continue
            is_passed = outcome is VerdictOutcome.PASSED
            verdict = Verdict(
                run_id=run.run_id, outcome=outcome, reasons=() if is_passed else (HOSTILE,)
            )
            web_work.control.process_result(run, verdict, sealed=create_sealed(run, key))
        return keys

    return enqueue_days


def fields(source: str, **more: str) -> dict[str, str]:
    return {"source": source, "customer": "acme", "query": "city", **more}


def address(source: str, **more: str) -> str:
    return str(httpx.URL("/partitions", params=fields(source, **{"year": "2026", **more})))


def test_calendar_shows_each_state_by_colour_and_symbol(
    client: httpx.Client, enqueue: Enqueue
) -> None:
    outcomes = VerdictOutcome.PASSED, VerdictOutcome.NEEDS_REVIEW, VerdictOutcome.FAILED, None
    keys = enqueue("calendar", *outcomes)
    page = client.get(address("calendar")).text
    for key, colour, symbol in zip(
        keys, ("ok", "warning", "failed", "active"), "✓!✗…", strict=True
    ):
        start = page.index(f'<a class="day {colour}" id="d{key.logical_date}"')
        assert f"<i>{symbol}</i>" in page[start : page.index("</a>", start)]
    assert 'aria-label="1, 2026-03-01: success' in page  # the visible number is in the name
    assert page.count('<li class="bare">') == 11  # months that a phone shows as one line
    assert "too few tiles &lt;script&gt;" in page
    assert "<script>alert" not in page
    assert 'name="bbox" required value="2.0,48.0,2.1,48.1"' in page  # of its newest run
    bare = client.get(address("calendar", year="2025")).text
    assert "no partitions" in bare
    assert bare.count("<span>Mo</span>") == 12
    with client.stream("GET", f"/live{address('calendar')}") as stream:
        assert "March" in next(line for line in stream.iter_lines() if "data:" in line)


def test_overview_lists_queries_page_by_page_and_failed_partitions(
    client: httpx.Client, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue("aaa-1", VerdictOutcome.FAILED)
    enqueue("aaa-2", None)
    monkeypatch.setattr(partitions, "_QUERIES_MAX", 1)
    page = client.get("/partitions").text
    assert "source=aaa-1&amp;" in page
    assert "source=aaa-2&amp;" not in page
    assert 'href="/partitions/aaa-1/acme/city/2026-03-01"' in page
    assert "source=aaa-2&amp;" in client.get("/partitions?after=aaa-1/acme/city").text


@pytest.mark.parametrize(
    "query",
    ["source=a", "after=a/b", "after=//", "source=a&customer=b&query=c&year=x", "source=../x"],
)
def test_invalid_selections_are_explained(client: httpx.Client, query: str) -> None:
    assert client.get(f"/partitions?{query}").status_code == 400


def test_partition_shows_verdicts_attempts_and_story(
    client: httpx.Client, enqueue: Enqueue
) -> None:
    (key,) = enqueue("story-p", VerdictOutcome.FAILED)
    page = client.get(f"/partitions/{key}").text
    assert "was rejected" in page
    assert "Verdicts" in page
    assert "<script>alert" not in page
    assert "new → pending" in page  # from the audit log
    assert client.get("/partitions/story-p/acme/city/2026-03-09").status_code == 404
    assert client.get("/partitions/story-p/acme").status_code == 400
    with client.stream("GET", f"/live/partition?partition={key}") as stream:
        assert "was rejected" in next(line for line in stream.iter_lines() if "data:" in line)


def test_failed_partition_is_marked_terminal(
    client: httpx.Client, enqueue: Enqueue, web_work: ControlPlane
) -> None:
    (key,) = enqueue("mark", VerdictOutcome.FAILED)
    done = confirm_change(
        client, "/partitions/mark-terminal", {"partition": str(key)}, reason="no imagery"
    )
    assert "1 partition marked." in done.text
    found = web_work.reader.find_partition(key)
    assert found is not None
    assert found.terminal_marker == "no imagery"
    assert "not retried automatically" in client.get(f"/partitions/{key}").text


def test_range_of_failed_partitions_needs_raw_data(client: httpx.Client, enqueue: Enqueue) -> None:
    failed, passed = VerdictOutcome.FAILED, VerdictOutcome.PASSED
    enqueue("range", failed, passed, failed)
    days = fields("range", first="2026-03-01", last="2026-03-31")
    preview = post_form(client, "/partitions/retry", days).text
    assert "Retry 2 partitions" in preview
    assert "range/acme/city/2026-03-02" not in preview
    # the sink of this site has none of them, so the whole change is refused
    refused = confirm_change(client, "/partitions/retry", days, reason="fixed")
    assert refused.status_code == 409
    missing = post_form(client, "/partitions/retry", {"partition": "range/acme/x/2026-03-02"})
    assert missing.status_code == 404


def test_preview_shows_the_first_of_many(
    client: httpx.Client, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_changes, "_PREVIEWED_MAX", 1)
    keys = enqueue("first", VerdictOutcome.FAILED, VerdictOutcome.FAILED)
    days = fields("first", first="2026-03-01", last="2026-03-31")
    preview = post_form(client, "/partitions/mark-terminal", days).text
    assert "The table shows the first 1." in preview
    assert str(keys[1]) not in preview
    reprocess = post_form(client, "/partitions/retry", {"partition": str(keys[0])}).text
    assert "a new run, now" in reprocess


def test_backfill_is_planned_then_applied_exactly(
    client: httpx.Client, enqueue: Enqueue, web_work: ControlPlane
) -> None:
    (key, _) = enqueue("fill", VerdictOutcome.PASSED, VerdictOutcome.FAILED)
    days = {**fields("fill", first="2026-03-01", last="2026-03-12"), **AREA}
    preview = post_form(client, "/partitions/backfill", days).text
    assert "Backfill 11 partitions" in preview
    assert "nothing: success" in preview
    assert "Type 11 to confirm" in preview
    confirmed = {"reason": "new customer", "confirmed_count": "11"}
    drifted = {**days, "include_terminal": "1", "plan_hash": "0", **confirmed}
    assert post_form(client, "/partitions/backfill/apply", drifted).status_code == 409
    done = confirm_change(client, "/partitions/backfill", days, **confirmed)
    assert "11 runs started by plan" in done.text
    found = web_work.reader.find_partition(key)
    assert found is not None
    assert found.status is PartitionStatus.SUCCESS
    again = post_form(client, "/partitions/backfill", {**days, "reprocess": "1"}).text
    assert "Backfill 1 partition" in again


def test_backfill_keeps_the_shape_of_the_newest_run(
    client: httpx.Client,
) -> None:
    shape = Shape.from_degrees(polygons=[[[(36.1, 49.9), (36.4, 49.9), (36.2, 50.1)]]])
    days = {
        **fields("shaped", first="2026-03-01", last="2026-03-01"),
        **AREA,
        "bbox": str(shape.bbox),
        "shape": str(shape),
    }
    assert "its shape only" in post_form(client, "/partitions/backfill", days).text
    confirm_change(client, "/partitions/backfill", days, reason="new customer", confirmed_count="1")
    page = client.get(address("shaped")).text
    assert f'name="shape" value="{shape}" checked' in page
    other = {**days, "bbox": AREA["bbox"] + "1"}
    assert post_form(client, "/partitions/backfill", other).status_code == 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"last": "2027-03-03"},
        {"first": "2026-04-01"},
        {"first": "x"},
        {"bbox": "x"},
        {"zoom": "x"},
        {"sector": ""},
        {"query": ""},
    ],
)
def test_invalid_backfill_is_explained(client: httpx.Client, wrong: dict[str, str]) -> None:
    days = {**fields("wrong", first="2026-03-01", last="2026-03-12"), **AREA, **wrong}
    assert post_form(client, "/partitions/backfill", days).status_code == 400
