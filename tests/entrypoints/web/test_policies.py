"""The page of the retry policies, over HTTP."""

import re

import httpx
import pytest
from support.web_site import RunningSite, read_fragment

from tileferry.domain.retry import (
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    RetryPolicy,
    build_schedule,
)
from tileferry.entrypoints.web.policies import Simulations
from tileferry.entrypoints.web.policy_plot import SchedulePlot, plot_schedule

KV = "category=KV_GET"


def read_row(page: str, name: str) -> list[str]:
    """Return the texts of a row of the matrix."""
    row = page.partition('<table class="matrix">')[2].partition(f">{name}</a>")[2]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row.partition("</tr>")[0], re.DOTALL)
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in cells]


def test_matrix_shows_the_decision_for_each_error_class(
    client: httpx.Client, site: RunningSite
) -> None:
    page = client.get("/policies").text
    policies = site.installation.policies
    errors: list[ErrorClass] = [Retryable(), RateLimited(), RateLimited(30.0), Final()]
    for name, named in policies.items():
        for error, text in zip(errors, read_row(page, name)[:4], strict=True):
            schedule = build_schedule(named.policy, error)
            is_retried = bool(schedule.waits)
            assert text.startswith(f"{schedule.calls:,} calls" if is_retried else "gives up")
    assert read_row(page, "KV_GET")[3] == "gives up"


def test_schedule_is_drawn_without_inline_style(client: httpx.Client) -> None:
    page = client.get("/policies?category=API_REQUEST&error=timeout").text
    assert page.count("<rect ") == 2
    assert ">cap 30 s</text>" in page
    assert ">no deadline</text>" in page
    assert "It gives up after call 3: all attempts are used up." in page
    assert "style=" not in page
    assert "<svg viewBox" not in client.get("/policies?category=API_REQUEST&error=final").text


def plot(policy: RetryPolicy) -> SchedulePlot:
    found = plot_schedule(policy, build_schedule(policy, Retryable()))
    assert found is not None
    return found


def test_bars_are_proportional_to_the_waits_and_end_at_the_cap() -> None:
    drawn = plot(
        RetryPolicy(
            max_attempts=5, base_delay=1.0, max_delay=4.0, jitter_enabled=False, deadline_s=22.0
        )
    )
    heights = [bar.height for bar in drawn.bars]
    assert heights == [heights[0], heights[0] * 2, heights[0] * 4, heights[0] * 4]
    assert drawn.bars[-1].y == drawn.cap.at
    assert drawn.deadline is not None
    assert drawn.deadline.at == drawn.right
    assert drawn.calls[-1] == drawn.left + (drawn.right - drawn.left) / 2  # 11 s of 22 s


def test_long_schedule_is_cut_and_says_so(client: httpx.Client) -> None:
    drawn = plot(RetryPolicy(max_attempts=1_000, base_delay=0.0, max_delay=0.0))
    assert (len(drawn.bars), drawn.left_out) == (40, 959)
    assert sum(bool(bar.label) for bar in drawn.bars) == 8
    page = client.get("/policies?category=DOWNLOAD_SESSION&error=429:30").text
    assert "19 more are not drawn" in page
    assert ">deadline 30 min</text>" in page


@pytest.mark.usefixtures("retried_calls")
def test_proposal_of_tune_is_shown(client: httpx.Client) -> None:
    with client.stream("GET", f"/live/policy-tune?{KV}") as stream:
        sent = next(line for line in stream.iter_lines() if "calls" in line)
    assert "40 calls that failed at least once" in sent
    page = client.get(f"/policies?{KV}").text
    assert "AWS standard" in page
    assert "No change proposed" in page or "[tileferry.retry.KV_GET]" in page
    few = client.get("/policies?category=KV_PUT").text
    assert "The audit log has no retried call in that period; 30 are needed." in few


@pytest.mark.usefixtures("retried_calls")
def test_simulation_compares_and_changes_nothing(client: httpx.Client, site: RunningSite) -> None:
    before = site.installation.policies["KV_GET"]
    asked = f"{KV}&max_attempts=1&max_delay=&since=24h"
    found = read_fragment(client, f"/live/policy-simulation?{asked}", "Read 20")
    assert "40 calls succeeded, but would have been given up earlier." in found
    cells = re.findall(r'<td data-title="(?:actual|what if|change)">(.*?)</td>', found)
    assert cells[:6] == ["40", "0", "-40", "0", "40", "+40"]
    page = client.get(f"/policies?{asked}").text
    assert "40 calls succeeded, but would have been given up earlier." in page
    assert 'name="max_attempts" value="1"' in page
    none = f"/live/policy-simulation?{KV}&max_attempts=1&since=1s"
    assert "The audit log has no such call in that period." in read_fragment(
        client, none, "Read 20"
    )
    assert site.installation.policies["KV_GET"] == before
    assert client.post("/policies", data={"max_attempts": "1"}).status_code in {403, 405}


def test_simulation_waits_for_the_one_that_runs(client: httpx.Client, site: RunningSite) -> None:
    asked = f"{KV}&max_attempts=2&since=2s"
    simulations = site.server.site.get_state(Simulations, Simulations.create)
    with simulations._running:
        assert "Reading the log …" in client.get(f"/policies?{asked}").text
    assert "no such call" in read_fragment(client, f"/live/policy-simulation?{asked}", "Read 20")


def test_only_the_latest_simulations_are_kept() -> None:
    simulations = Simulations.create()
    with simulations._running:  # nothing is computed
        first, second = (simulations.get(key, pytest.fail) for key in ("first", "second"))
        for number in range(62):
            simulations.get(number, pytest.fail)
        assert simulations.get("first", pytest.fail) is first
        simulations.get("one more", pytest.fail)
        assert simulations.get("first", pytest.fail) is first
        assert simulations.get("second", pytest.fail) is not second


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("category=x", "must be one of"),
        ("error=%3Cscript%3E", "must be one of"),
        ("max_attempts=2.5", "is not a whole number"),
        ("base_delay=soon", "is not a number"),
        ("base_delay=nan", "base_delay"),
        ("max_attempts=0", "max_attempts"),
        ("max_attempts=2&since=%3Cscript%3E", "is neither a duration nor a time"),
    ],
)
def test_invalid_fields_are_explained(client: httpx.Client, query: str, problem: str) -> None:
    answer = client.get(f"/policies?{query}")
    assert answer.status_code == 400
    assert problem in answer.text
    assert "<script>" not in answer.text
