"""The demo runs as the README says, shows what the README shows, and leaves its report."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import frozen
from support import contracts
from support.html_page import parse_page

from tileferry.entrypoints.demo.scenario import CAPTURED, FAILING, POISONED

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)  # two dozen commands, each a process, beside other tests
TILES = 121


@frozen
class DemoRun:
    """What a run of it left."""

    told: str
    facts: dict[str, Any]
    page: str
    map_page: str
    kept: Path

    def chapter(self, number: int) -> str:
        """What was told in one chapter."""
        return re.split(r"(?m)^\d  .* ─+$", self.told)[number]


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory, servers_root: Path) -> DemoRun:
    report = tmp_path_factory.mktemp("demo") / "made" / "report.html"
    kept = Path(tempfile.mkdtemp(dir=servers_root)) / "kept"
    done = subprocess.run(  # noqa: S603  # our own command
        [
            *(sys.executable, "-m", "tileferry.entrypoints.cli"),
            *("demo", "--small", "--json", "--report", str(report), "--keep", str(kept)),
        ],
        env={
            **os.environ,
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TILEFERRY_DATABASE_URL": "not-ours",
            "TMPDIR": str(servers_root),  # its database is made there
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stderr
    facts = contracts.parse_output(done.stdout)
    assert (facts["report"], facts["kept"]) == (str(report), str(kept))
    page, map_page = (Path(facts[name]).read_text(encoding="utf-8") for name in ("report", "map"))
    return DemoRun(done.stderr, facts, page, map_page, kept)


def test_demo_sets_up_new_installation(demo_run: DemoRun) -> None:
    assert "run `tileferry db upgrade`" in demo_run.chapter(1)
    assert "Upgraded the schema from empty to" in demo_run.chapter(1)
    assert f"{TILES} tiles" in demo_run.chapter(2)


def test_killed_download_resumes_without_refetching(demo_run: DemoRun) -> None:
    told, facts = demo_run.chapter(3), demo_run.facts
    assert told.index("SIGKILL") < told.index("NO-GO") < told.index("outcome")
    assert (facts["tiles"], facts["fetched_twice"]) == (TILES, 0)
    assert 0 < facts["safe_when_killed"] < TILES
    assert f"{TILES} tiles, {facts['tile_requests']} requests" in told
    assert (
        f"Of {facts['safe_when_killed']} tiles that were safe by then, 0 were fetched twice" in told
    )
    assert facts["tile_requests"] >= TILES + facts["bad_answers"]
    assert facts["verdicts"] == ["NO-GO", "GO"]
    assert "GO" in demo_run.chapter(4)


def test_flight_is_uploaded_and_rejected_tiles_are_given_up(demo_run: DemoRun) -> None:
    assert re.search(rf"stored\s+{len(CAPTURED)}", demo_run.chapter(5))
    first, second = demo_run.chapter(6).split("$ tileferry upload ")[1:]
    assert re.search(r"delivered\s+45\s+rejected\s+3\s+retries\s+3\s", first)
    assert "given up" not in first.split("Later again")[0]
    upload, listed = second.split("$ tileferry giveups")
    assert re.search(r"delivered\s+0\s+rejected\s+3\s+given up now\s+3\s", upload)
    assert len(re.findall(r"flight-derkachi-07/\S+\s+5\s+", listed)) == len(POISONED)
    assert demo_run.facts["given_up"] == sorted(POISONED)
    assert demo_run.facts["delivered"] == len(CAPTURED) - len(POISONED)


def test_failed_partition_is_retried_successfully(demo_run: DemoRun) -> None:
    told = demo_run.chapter(7)
    assert re.search(rf"failed\s+{FAILING}\s+1 attempt: 6 of 36 tiles missing", told)
    assert told.count("success      satellite/acme/fields") == 2
    assert (
        told.index("state retry")
        < told.rindex("processed 1 run: 1 passed.")
        < told.index("verdict 2    passed")
    )
    assert demo_run.facts["partition_outcomes"] == ["failed", "passed"]


def test_decisions_are_explained_and_audit_is_intact(demo_run: DemoRun) -> None:
    told = demo_run.chapter(8)
    for line in (
        "The validator rejected it at",
        "It gives up after call 5",
        "1 decision recomputed, all identical",
        "Retries over time",
    ):
        assert line in told
    assert re.search(r"verdict\s+intact", told)
    assert demo_run.facts["audit_intact"]
    assert f"{demo_run.facts['audit_entries']}" in told


def test_demo_ends_with_the_map(demo_run: DemoRun) -> None:
    assert "GO for flight derkachi-07: report-map.html" in demo_run.chapter(9)
    assert 'href="report-map.html"' in demo_run.page
    assert "data:image/jpeg;base64" in demo_run.map_page
    assert "6 downgraded for age" in demo_run.map_page
    assert not re.search(r"https?://|<script|url\(", demo_run.map_page)


def test_kept_data_can_be_served(demo_run: DemoRun) -> None:
    process = subprocess.Popen(  # noqa: S603  # our own command
        [
            *(sys.executable, "-m", "tileferry.entrypoints.cli", "serve", "--port", "0", "--json"),
            *("--config", str(demo_run.kept / "tileferry.toml")),
        ],
        env={**os.environ, "TILEFERRY_C11_SERVICE_API_KEY": "demo"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        tile = httpx.get(f"{url}/tiles/merged/14/9840/5553", trust_env=False)
        process.terminate()
    assert (tile.status_code, tile.headers["x-tile-source"]) == (200, "satellite")


def test_output_has_nine_chapters_and_no_escapes(demo_run: DemoRun) -> None:
    headings = [line for line in demo_run.told.splitlines() if line.endswith("───")]
    chapters = [line for line in headings if re.match(r"\d  \w", line)]
    assert [line[0] for line in chapters] == [*"123456789"]
    assert {len(line) for line in chapters} == {100}
    assert "\x1b" not in demo_run.told


def test_report_is_self_contained_and_has_figures_of_run(demo_run: DemoRun) -> None:
    texts = parse_page(demo_run.page).texts
    assert not re.search(r"https?://|<script|url\(", demo_run.page)
    facts = demo_run.facts
    for text in (
        f"of {facts['safe_when_killed']} that were safe at the power loss",
        f"{facts['tile_requests']}",
        f"{facts['audit_entries']} entries, linked by their hashes: the chain is intact.",
        f"{FAILING} is success after 2 verdicts.",
        *POISONED.values(),
    ):
        assert text in texts
    assert f"A bar for each of {facts['retries']} retries." in demo_run.page
    safe = facts["safe_when_killed"]
    assert f"{safe} stored, {TILES - safe} missing" in texts
    assert "115 stored, 6 stored, downgraded (stale)" in texts
    assert "45 captured and delivered, 3 given up: an operator decides" in texts


def test_readme_matches_demo_output(demo_run: DemoRun) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    capture = readme.split("<!-- demo -->")[1].split("<!-- end -->")[0].strip("`\n ")
    said = [line for line in capture.splitlines() if line.startswith("$ tileferry")]
    assert said
    told = [line for line in demo_run.told.splitlines() if line.startswith("$ tileferry")]
    assert {line.split()[2] for line in said} <= {line.split()[2] for line in told}


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"make ([a-z]+(?:-[a-z]+)*)", (ROOT / page).read_text(encoding="utf-8"))
        assert set(named) - {"sure"} <= targets, page
