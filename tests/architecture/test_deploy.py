"""The deployment kit: rules, dashboard and units use what exists, and their tools accept them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tileferry.entrypoints.cli.tree import iter_commands

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\btileferry_[a-z_]+")
COMMAND = re.compile(r"tileferry ((?:[a-z]+ ?){1,2})")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def list_documented() -> set[str]:
    table = read("_docs/metrics.md").split("<!-- metrics -->")[1].split("<!-- end -->")[0]
    return set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def list_used(text: str) -> set[str]:
    return {name.removesuffix("_bucket") for name in METRIC.findall(text)}


def test_alerts_use_metrics_that_exist() -> None:
    assert list_used(read("deploy/prometheus/alerts.yml")) <= list_documented()
    assert list_used(read("deploy/prometheus/alerts_test.yml")) <= list_documented()


def test_dashboard_shows_every_metric_and_no_other() -> None:
    board = json.loads(read("deploy/grafana/tileferry.json"))
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert list_used(" ".join(shown)) == list_documented()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_commands_of_runbooks_exist() -> None:
    known = {" ".join(words) for words, _ in iter_commands()}
    texts = [read("deploy/prometheus/alerts.yml")]
    runbooks = re.findall(r'runbook: "(.*)"', texts[0])
    assert len(runbooks) == texts[0].count("- alert:")
    units = [path.read_text(encoding="utf-8") for path in (DEPLOY / "systemd").glob("*.service")]
    named = [
        found.split()
        for text in [*runbooks, *re.findall(r"bin/(tileferry .*)", "\n".join(units))]
        for found in COMMAND.findall(text)
    ]
    assert len(named) > len(runbooks) / 2
    assert [words for words in named if not {" ".join(words), words[0]} & known] == []


def run_tool(*command: str, cwd: Path) -> str:
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(  # noqa: S603  # a tool that is installed here
        [program, *command[1:]], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    folder = DEPLOY / "prometheus"
    run_tool("promtool", "check", "rules", "alerts.yml", cwd=folder)
    run_tool("promtool", "check", "config", "prometheus.yml", cwd=folder)
    run_tool("promtool", "test", "rules", "alerts_test.yml", cwd=folder)


def test_systemd_accepts_the_units_as_hardened(tmp_path: Path) -> None:
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text(encoding="utf-8").replace("/opt/tileferry/bin/tileferry", "/bin/true")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    units = [f"./{path.name}" for path in sorted(tmp_path.iterdir())]
    assert run_tool("systemd-analyze", "verify", "--man=no", *units, cwd=tmp_path).strip() == ""
    for unit in (one for one in units if one.endswith(".service")):
        # The threshold is ten times the exposure level: 0 is the best, 10 the worst.
        options = ("security", "--offline=yes", "--threshold=20")
        run_tool("systemd-analyze", *options, unit, cwd=tmp_path)


def test_kit_has_no_secret_and_no_address_beyond_loopback() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert "password" not in text, path
            hosts = set(re.findall(r"https?://([^/:\s\"']+)", text))
            assert hosts <= {"127.0.0.1", "localhost"}, path
