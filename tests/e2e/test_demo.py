"""The demo runs as the README says, shows what the README shows, and leaves its report."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from support import json_forms
from support.html_page import read_page

from tileferry.entrypoints.demo.scenery import CAPTURED, FAILING, POISONED

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)  # two dozen commands, each a process, beside other tests
TILES = 121


@frozen
class Demo:
    """What a run of it left."""

    told: str
    facts: dict[str, Any]
    page: str

    def chapter(self, number: int) -> str:
        """What was told in one chapter."""
        return re.split(r"(?m)^\d  .* ─+$", self.told)[number]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    report = tmp_path_factory.mktemp("demo") / "made" / "report.html"
    done = subprocess.run(  # noqa: S603  # our own command
        [
            *(sys.executable, "-m", "tileferry.entrypoints.cli"),
            *("demo", "--small", "--json", "--report", str(report)),
        ],
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TILEFERRY_DATABASE_URL": "not-ours"},
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stderr
    facts = json_forms.read(done.stdout)
    assert facts["report"] == str(report)
    return Demo(done.stderr, facts, report.read_text(encoding="utf-8"))


def test_a_new_laptop_is_made_fit(demo: Demo) -> None:
    assert "run tileferry db upgrade" in demo.chapter(1)
    assert "The schema went from empty to" in demo.chapter(1)
    assert f"{TILES} tiles" in demo.chapter(2)


def test_it_is_killed_goes_on_and_fetches_nothing_twice(demo: Demo) -> None:
    told, facts = demo.chapter(3), demo.facts
    assert told.index("SIGKILL") < told.index("NO-GO") < told.index("outcome")
    assert (facts["tiles"], facts["fetched_twice"]) == (TILES, 0)
    assert 0 < facts["safe_when_killed"] < TILES
    assert f"{TILES} tiles, {facts['tile_requests']} requests" in told
    assert (
        f"Of {facts['safe_when_killed']} tiles that were safe by then, 0 were fetched twice" in told
    )
    assert facts["tile_requests"] >= TILES + facts["bad_answers"]
    assert facts["verdicts"] == ["NO-GO", "GO"]
    assert "GO" in demo.chapter(4)


def test_it_delivers_a_flight_and_leaves_the_poison_to_a_human(demo: Demo) -> None:
    assert re.search(rf"taken in\s+{len(CAPTURED)}", demo.chapter(5))
    first, second = demo.chapter(6).split("$ tileferry upload ")[1:]
    assert re.search(r"delivered\s+45\s+rejected\s+3\s+retries\s+3\s", first)
    assert "given up" not in first.split("Later again")[0]
    upload, listed = second.split("$ tileferry giveups")
    assert re.search(r"delivered\s+0\s+rejected\s+3\s+given up by this\s+3\s", upload)
    assert len(re.findall(r"flight-derkachi-07/\S+\s+5\s+", listed)) == len(POISONED)
    assert demo.facts["given_up"] == sorted(POISONED)
    assert demo.facts["delivered"] == len(CAPTURED) - len(POISONED)


def test_a_partition_fails_and_is_done_again(demo: Demo) -> None:
    told = demo.chapter(7)
    assert re.search(rf"failed\s+{FAILING}\s+1 attempt: 6 of 36 tiles missing", told)
    assert told.count("success      satellite/acme/fields") == 2
    assert (
        told.index("state retry")
        < told.rindex("did 1 run: 1 passed.")
        < told.index("verdict 2    passed")
    )
    assert demo.facts["partition_outcomes"] == ["failed", "passed"]


def test_it_says_why_and_can_prove_it(demo: Demo) -> None:
    told = demo.chapter(8)
    for line in (
        "and rejected: 6 of 36 tiles missing",
        "It gives up after call 5",
        "1 decision made again, all the same to the byte",
        "Retries over time",
    ):
        assert line in told
    assert re.search(r"verdict\s+intact", told)
    assert demo.facts["audit_intact"]
    assert f"{demo.facts['audit_entries']}" in told


def test_it_has_eight_chapters_and_is_plain_where_there_is_no_terminal(demo: Demo) -> None:
    headings = [line for line in demo.told.splitlines() if line.endswith("───")]
    chapters = [line for line in headings if re.match(r"\d  \w", line)]
    assert [line[0] for line in chapters] == [*"12345678"]
    assert {len(line) for line in chapters} == {100}
    assert "\x1b" not in demo.told


def test_the_report_opens_offline_and_has_the_numbers_of_the_run(demo: Demo) -> None:
    texts = read_page(demo.page).texts
    assert not re.search(r"https?://|<script|url\(", demo.page)
    facts = demo.facts
    for text in (
        f"of {facts['safe_when_killed']} that were safe when the power went",
        f"{facts['tile_requests']}",
        f"{facts['audit_entries']} entries, each bound to the one before it: the chain is intact.",
        f"{FAILING} is success after 2 verdicts.",
        *POISONED.values(),
    ):
        assert text in texts
    assert f"A bar for each of {facts['retries']} retries." in demo.page
    safe = facts["safe_when_killed"]
    assert f"{safe} stored, {TILES - safe} missing" in texts
    assert "115 stored, 6 stored, downgraded for its age" in texts
    assert "45 captured and delivered, 3 given up: a human decides" in texts


def test_the_readme_shows_what_the_demo_prints(demo: Demo) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    capture = readme.split("<!-- demo -->")[1].split("<!-- end -->")[0].strip("`\n ")
    said = [line for line in capture.splitlines() if line.startswith("$ tileferry")]
    assert said
    told = [line for line in demo.told.splitlines() if line.startswith("$ tileferry")]
    assert {line.split()[2] for line in said} <= {line.split()[2] for line in told}


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
        assert set(named) - {"sure"} <= targets, page
