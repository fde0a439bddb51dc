"""Every command ends with the documented code, and tells scripts why."""

import shlex
from pathlib import Path

import pytest
from support.documented import typed_in
from support.operator import move_in, run_here
from support.scripted_provider import KEY

from tileferry.entrypoints.cli.tree import leaves

LEAVES = dict(leaves())
NEEDS_NO_SETTINGS = {("config", "init"), ("demo",), ("provider", "faults"), ("provider", "serve")}
READS_A_PLAN_FIRST = {("backfill", "apply")}
NEEDS_NO_DATABASE = (
    NEEDS_NO_SETTINGS
    | READS_A_PLAN_FIRST
    | {
        ("config", "show"),
        ("policy", "show"),
        ("policy", "explain"),
    }
)
AWAY = "postgresql://nobody@127.0.0.1:1/none"
FILES = {
    "card": None,
    "record.json": '{"flight_id": "F7", "state": "on_ground", "recorded_at": "2026-11-16T09:40Z"}',
    "area.mbtiles": "no archive",
}
"""What the examples name, so that nothing but the database is missing."""


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in FILES.items():
        if content is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text(content)
    move_in(
        monkeypatch,
        tmp_path,
        {
            "TILEFERRY_DATABASE_URL": AWAY,
            "TILEFERRY_C11_SATELLITE_PROVIDER_URL": "http://127.0.0.1:1",
            "TILEFERRY_C11_SERVICE_API_KEY": KEY,
            "TILEFERRY_C11_CACHE_ROOT": str(tmp_path / "cache"),
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
            "TILEFERRY_LOG_FILE": str(tmp_path / "log.jsonl"),
        },
    )


def example_of(words: tuple[str, ...]) -> list[str]:
    """Return the first example of a command's help, as a script would run it."""
    first = shlex.split(typed_in(LEAVES[words].epilog)[0])[1:]
    return [*first, *([] if "--json" in first else ["--json"])]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_an_option_that_there_is_not_is_a_usage_error(words: tuple[str, ...]) -> None:
    ran = run_here(*words, "--no-such-option", "--json")
    assert (ran.code, ran.json["error"]["exit_code"]) == (2, 2)
    assert ran.json["error"]["type"] == "UsageError"
    assert "--no-such-option" in ran.json["error"]["message"]
    assert f"tileferry {' '.join(words)}" in ran.err


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    "words", sorted(set(LEAVES) - NEEDS_NO_SETTINGS - READS_A_PLAN_FIRST), ids=" ".join
)
def test_a_wrong_setting_is_a_usage_error(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "much")
    ran = run_here(*example_of(words))
    assert ran.code == 2, ran
    assert "c6.budget_bytes" in ran.out + ran.err


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("words", sorted(set(LEAVES) - NEEDS_NO_DATABASE), ids=" ".join)
def test_a_database_that_is_away_is_fatal_and_told(words: tuple[str, ...]) -> None:
    ran = run_here(*example_of(words))
    assert ran.code == 7, ran
    assert "database" in ran.err + ran.out
    assert "Traceback" not in ran.err
