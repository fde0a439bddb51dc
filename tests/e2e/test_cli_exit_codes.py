"""Every command ends with the documented code, and tells scripts why."""

import shlex
from pathlib import Path

import pytest
from support.documented_commands import extract_commands
from support.operator import enter_environment, run_in_process
from support.scripted_provider import KEY

from tileferry.entrypoints.cli.tree import iter_commands

LEAVES = dict(iter_commands())
NEEDS_NO_SETTINGS = {("config", "init"), ("demo",), ("provider", "faults"), ("provider", "serve")}
READS_A_PLAN_FIRST = {("backfill", "apply")}
NEEDS_NO_DATABASE = (
    NEEDS_NO_SETTINGS
    | READS_A_PLAN_FIRST
    | {
        ("backup", "restore"),  # reads the backup first
        ("backup", "verify"),
        ("config", "show"),
        ("db", "start"),  # of the embedded server only
        ("db", "stop"),
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
def offline_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in FILES.items():
        if content is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text(content)
    enter_environment(
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


def first_example(words: tuple[str, ...]) -> list[str]:
    """Return the first example of a command's help, as a script would run it."""
    first = shlex.split(extract_commands(LEAVES[words].epilog)[0])[1:]
    return [*first, *([] if "--json" in first else ["--json"])]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_unknown_option_is_usage_error(words: tuple[str, ...]) -> None:
    ran = run_in_process(*words, "--no-such-option", "--json")
    assert (ran.code, ran.json["error"]["exit_code"]) == (2, 2)
    assert ran.json["error"]["type"] == "UsageError"
    assert "--no-such-option" in ran.json["error"]["message"]
    assert f"tileferry {' '.join(words)}" in ran.err


@pytest.mark.usefixtures("offline_home")
@pytest.mark.parametrize(
    "words", sorted(set(LEAVES) - NEEDS_NO_SETTINGS - READS_A_PLAN_FIRST), ids=" ".join
)
def test_invalid_setting_is_usage_error(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "much")
    ran = run_in_process(*first_example(words))
    assert ran.code == 2, ran
    assert "c6.budget_bytes" in ran.out + ran.err


@pytest.mark.usefixtures("offline_home")
@pytest.mark.parametrize("words", sorted(set(LEAVES) - READS_A_PLAN_FIRST), ids=" ".join)
def test_misspelt_variable_is_usage_error(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROT", "/tiles")
    ran = run_in_process(*first_example(words))
    assert ran.code == 2, ran
    assert "TILEFERRY_C11_CACHE_ROT" in ran.out
    assert "did you mean TILEFERRY_C11_CACHE_ROOT?" in ran.out


@pytest.mark.usefixtures("offline_home")
@pytest.mark.parametrize("words", sorted(set(LEAVES) - NEEDS_NO_DATABASE), ids=" ".join)
def test_unreachable_database_exits_with_7(words: tuple[str, ...]) -> None:
    ran = run_in_process(*first_example(words))
    assert ran.code == 7, ran
    assert "database" in ran.err + ran.out
    assert "Traceback" not in ran.err
