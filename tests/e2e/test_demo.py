"""The demo runs as the README says and shows what the README shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tileferry.entrypoints.demo.story import FAULTS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)  # a dozen commands, each a process, beside other tests
POISONED = [str(fault["tile"]) for fault in FAULTS if fault["fault"] == "poison"]


@pytest.fixture(scope="module")
def demo() -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(  # our own command
        [sys.executable, "-m", "tileferry.entrypoints.demo", "--small"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    return done.stdout


def test_the_demo_tells_the_whole_story(demo: str) -> None:
    for line in (
        "The schema went from empty to",
        "to fetch",
        "done before; nothing was left to do",
        "GO",
        "taken in             48",
        "verdict         intact",
    ):
        assert line in demo
    # It was killed on the way, and the second run fetched less than the whole.
    assert re.search(r"in the cache\s+121", demo)
    fetched = re.search(r"fetched now\s+([\d.]+) (\w+)", demo)
    assert fetched is not None
    planned = re.search(r"121 tiles, ([\d.]+) (\w+)", demo)
    assert planned is not None
    assert fetched[2] != planned[2] or float(fetched[1]) < float(planned[1])


def test_the_demo_delivers_a_flight_and_leaves_the_poison_to_a_human(demo: str) -> None:
    first, second = demo.split("$ tileferry upload ")[1:]
    assert re.search(r"delivered\s+45\s+rejected\s+3\s+retries\s+3\s", first)
    assert "given up" not in first
    upload, listed, shown = re.split(
        r"\$ tileferry giveups \w+", second.split("$ tileferry audit")[0]
    )
    assert re.search(r"delivered\s+0\s+rejected\s+3\s+given up by this\s+3\s", upload)
    assert len(re.findall(r"flight-derkachi-07/\S+\s+5\s+", listed)) == len(POISONED)
    assert re.search(r"the provider said\s+clouds: 93 %", shown)
    for tile in POISONED:
        assert f"flight-derkachi-07/{tile}" in upload


def test_the_readme_shows_what_the_demo_prints(demo: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    capture = readme.split("<!-- demo -->")[1].split("<!-- end -->")[0].strip("`\n ")
    said = [line for line in capture.splitlines() if line.startswith("$ tileferry")]
    assert said
    commands = {line.split()[2] for line in demo.splitlines() if line.startswith("$ tileferry")}
    assert {line.split()[2] for line in said} <= commands


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
        assert set(named) - {"sure"} <= targets, page
