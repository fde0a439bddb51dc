"""The demo runs as the README says and shows what the README shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tileferry.domain.retry import RetryCategory

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def demo() -> str:
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(  # our own command
        [sys.executable, "-m", "tileferry.entrypoints.demo"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_the_matrix_is_shown_whole(demo: str) -> None:
    rows = [line for line in lines_of(demo) if line.split()[0] in RetryCategory.__members__]
    assert len(rows) == 17
    assert len([line for line in lines_of(demo) if line.startswith("tile download  ")]) == 1
    assert rows[0].split()[1:] == ["5", "1", "s", "30", "s", "x2", "±10%", "16.5", "s"]
    assert "…" not in demo


def test_the_readme_shows_what_the_demo_prints(demo: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    captures = [
        text for text in re.findall(r"```\n(.*?)```", readme, re.DOTALL) if "attempt" in text
    ]
    assert len(captures) == 1
    shown = lines_of(captures[0])
    printed = lines_of(demo)
    begin = printed.index(shown[0])
    assert printed[begin : begin + len(shown)] == shown


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
        assert set(named) - {"sure"} <= targets, page
