"""``tileferry policy``, as an operator uses it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.audit_events import create_call_events
from support.operator import Operator, run_in_process

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.retry import RateLimited, Retryable, RetryCategory, RetryPolicy
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import list_policies


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Nothing but simulate needs a database; this one is none.
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    return tmp_path


# show


def test_spec2_policy_matrix_is_shown(home: Path) -> None:
    ran = Operator(home, "postgresql://nobody@127.0.0.1:1/none").run("policy", "show")
    assert (ran.code, ran.err) == (0, "")
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert set(RetryCategory.__members__) <= set(rows)
    assert rows["NATS_CONNECT"].split() == [
        *("NATS_CONNECT", "5", "1", "s", "30", "s", "x2", "±10%", "16.5", "s")
    ]
    assert "*" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_overridden_settings_are_marked(home: Path) -> None:
    (home / "tileferry.toml").write_text("[tileferry.retry.KV_GET]\nmax_attempts = 5\n")
    ran = run_in_process("policy", "show")
    (row,) = (line for line in ran.out.splitlines() if line.strip().startswith("KV_GET"))
    assert row.split()[:2] == ["KV_GET*", "5*"]
    assert "* retry.KV_GET.max_attempts is 5, default 3" in ran.out
    body = run_in_process("policy", "show", "--json").json
    assert body["schema"] == "tileferry.policy.show.v1"
    assert body["categories"]["KV_GET"]["overridden"] == ["max_attempts"]
    assert body["categories"]["KV_PUT"] == {
        "code": "RETRY_KV_PUT",
        "max_attempts": 3,
        "base_delay": 0.5,
        "max_delay": 10.0,
        "backoff_multiplier": 2.0,
        "jitter_enabled": True,
        "jitter_factor": 0.1,
        "backoff": "exponential",
        "deadline_s": None,
        "max_rate_limited": 10,
        "max_retry_after_s": 300.0,
        "overridden": [],
    }


def test_download_and_upload_have_own_policies(home: Path) -> None:
    """What explains a download is what the downloader does, not what its category has."""
    (home / "tileferry.toml").write_text("[tileferry.c11]\nmax_5xx_retries = 2\n")
    shown = run_in_process("policy", "show")
    (row,) = (line for line in shown.out.splitlines() if line.strip().startswith("DOWNLOAD*"))
    assert row.split()[1] == "3*"
    assert "* c11: download has max_attempts 3, default 5" in shown.out
    explain = ("policy", "explain", "--json", "--category")
    assert run_in_process(*explain, "download", "--error", "503").json["worst_case_wait_s"] == 3.0
    assert run_in_process(*explain, "DOWNLOAD", "--error", "429:30").json["calls"] == 2
    upload = run_in_process(*explain, "upload", "--error", "timeout").json
    assert [wait["delay_s"] for wait in upload["waits"]] == [2.0, 4.0, 8.0]


def test_unknown_category_is_rejected_with_known_names() -> None:
    for command in (("explain",), ("simulate", "--max-attempts", "3")):
        ran = run_in_process("policy", *command, "--category", "nope")
        assert (ran.code, ran.out) == (2, "")
        assert "--category: is not a category of retries (got 'nope')" in ran.err
        names = "API_VALIDATION, DOWNLOAD, DOWNLOAD_SESSION, UPLOAD, RUN, PARTITION, QUARANTINE"
        assert names in " ".join(ran.err.split())


def test_runs_and_partitions_have_own_policies(home: Path) -> None:
    (home / "tileferry.toml").write_text("[tileferry.worker]\ninitial_backoff_s = 30\n")
    explain = ("policy", "explain", "--json", "--category")
    runs = run_in_process(*explain, "run", "--error", "503").json
    assert [wait["delay_s"] for wait in runs["waits"]] == [30, 60, 120, 240, 480, 960, 1920]
    partitions = run_in_process(*explain, "partition").json
    assert [wait["delay_s"] for wait in partitions["waits"]] == [300, 1800, 7200]


def test_settings_of_runs_and_partitions_specialize_their_category(home: Path) -> None:
    (home / "tileferry.toml").write_text(
        "[tileferry.retry.EXECUTION_INTENT]\nmax_rate_limited = 7\n"
        "[tileferry.retry.REPLAY_PROCESSING]\ndeadline_s = 999\n"
        "[tileferry.worker]\nmax_attempts = 3\nmax_rescues = 2\n"
        "[tileferry.partitions]\nmax_attempts = 5\ninitial_backoff_s = 10\nmax_backoff_s = 90\n"
        "backoff_multiplier = 3\njitter_enabled = false\njitter_factor = 0.2\n"
    )
    policies = list_policies(load_config(home / "tileferry.toml"))
    run, partition = policies["RUN"].policy, policies["PARTITION"].policy
    assert (run.max_attempts, run.max_rate_limited, run.base_delay) == (3, 7, 60.0)
    assert policies["QUARANTINE"].policy.max_attempts == 3
    assert partition == RetryPolicy(
        max_attempts=5,
        base_delay=10.0,
        max_delay=90.0,
        backoff_multiplier=3.0,
        jitter_enabled=False,
        jitter_factor=0.2,
        deadline_s=999.0,
    )


def test_invalid_override_is_rejected_by_path(home: Path) -> None:
    (home / "tileferry.toml").write_text("[tileferry.retry.KV_GET]\nmax_delay = 0.1\n")
    ran = run_in_process("policy", "show")
    assert (ran.code, ran.out) == (2, "")
    assert "retry.KV_GET.max_delay: is below base_delay" in ran.err


# explain


def test_explain_prints_retry_schedule() -> None:
    ran = run_in_process("policy", "explain", "--category", "API_REQUEST")
    assert ran.code == 0
    assert "It gives up after call 3: all attempts are used up." in ran.out
    assert "Waiting takes 3.3 s at most" in ran.out
    rows = [line.split() for line in ran.out.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:4] for row in rows] == [["1", "1", "1", "s"], ["2", "2", "2", "s"]]


@pytest.mark.parametrize(
    ("error", "calls", "ends_by", "worst_case_s"),
    [
        ("timeout", 3, "attempts_exhausted", 3.3),
        ("503", 3, "attempts_exhausted", 3.3),
        ("408", 3, "attempts_exhausted", 3.3),
        ("429", 3, "attempts_exhausted", 3.3),
        ("429:30", 11, "rate_limit_exhausted", 300.0),
        ("429:9999", 11, "rate_limit_exhausted", 3_000.0),
        ("final", 1, "final", 0.0),
        ("401", 1, "final", 0.0),
        ("404", 1, "final", 0.0),
    ],
)
def test_explain_shows_calls_and_giveup_reason_per_error(
    error: str, calls: int, ends_by: str, worst_case_s: float
) -> None:
    body = run_in_process(
        "policy", "explain", "--category", "api_request", "--error", error, "--json"
    ).json
    assert body["schema"] == "tileferry.policy.explain.v1"
    assert (body["calls"], body["ends_by"]) == (calls, ends_by)
    assert body["worst_case_wait_s"] == pytest.approx(worst_case_s)
    assert len(body["waits"]) == calls - 1


def test_long_schedule_is_abbreviated(home: Path) -> None:
    (home / "tileferry.toml").write_text("[tileferry.retry.KV_GET]\nmax_attempts = 100\n")
    ran = run_in_process("policy", "explain", "--category", "KV_GET")
    assert ran.out.count("\n") < 25
    assert "\n   99 " in ran.out


@pytest.mark.parametrize("error", ["", "boom", "999", "503:30", "429:-1", "429:x"])
def test_unknown_error_is_rejected(error: str) -> None:
    ran = run_in_process("policy", "explain", "--category", "KV_GET", "--error", error)
    assert (ran.code, ran.out) == (2, "")
    assert "--error: is not a known error" in ran.err


# simulate

SIMULATE = ("policy", "simulate", "--category", "API_REQUEST")


@pytest.fixture
def history(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store 6 calls: 3 succeed after one failure, 1 after two, 2 are given up after three."""
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", database_url)
    start_s = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    events = []
    for n, failures in enumerate([1, 1, 1, 2, 3, 3]):
        clock = ManualClock(start_s + n)
        events += create_call_events([Retryable()] * failures, clock=clock, key=f"k{n}")
    clock = ManualClock(start_s)
    events += create_call_events([RateLimited()], clock=clock, category=RetryCategory.KV_GET)
    events.sort(key=lambda event: event.timestamp)
    PostgresAuditLog(database=database).emit(events)


@pytest.mark.usefixtures("history")
def test_simulation_with_fewer_attempts_loses_calls() -> None:
    arguments = (*SIMULATE, "--max-attempts", "2")
    body = run_in_process(*arguments, "--json").json
    assert body["schema"] == "tileferry.policy.simulate.v1"
    assert (body["calls"], body["succeeded"], body["given_up"]) == (6, 4, 2)
    assert (body["would_succeed"], body["would_be_lost"], body["unknown"]) == (3, 1, 0)
    assert body["would_wait_s"] < body["waited_s"]
    assert (body["unfinished"], body["incomplete"]) == (0, 0)
    shown = run_in_process(*arguments)
    assert shown.code == 0
    assert "1 call succeeded, but would have been given up earlier." in shown.out


@pytest.mark.usefixtures("history")
def test_simulation_with_more_attempts_has_unknown_outcomes() -> None:
    arguments = (*SIMULATE, "--max-attempts", "5")
    body = run_in_process(*arguments, "--json").json
    assert (body["would_succeed"], body["unknown"], body["would_be_given_up"]) == (4, 2, 0)
    shown = run_in_process(*arguments)
    assert "2 calls that gave up would have been retried" in shown.out
    assert "the outcome is unknown" in shown.out


@pytest.mark.usefixtures("history")
def test_simulation_of_current_policy_changes_nothing() -> None:
    arguments = (*SIMULATE, "--max-attempts", "3")
    body = run_in_process(*arguments, "--json").json
    assert (body["would_be_lost"], body["unknown"]) == (0, 0)
    assert body["would_wait_s"] == pytest.approx(body["waited_s"])
    shown = run_in_process(*arguments)
    assert "Every call would have ended the same way." in shown.out


@pytest.mark.usefixtures("history")
def test_simulation_adds_up_longer_waits() -> None:
    body = run_in_process(*SIMULATE, "--base-delay", "2", "--json").json
    assert body["would_wait_s"] == pytest.approx(2 * body["waited_s"])


@pytest.mark.usefixtures("history")
def test_simulation_without_calls_says_so() -> None:
    ran = run_in_process(*SIMULATE, "--max-attempts", "2", "--since", "5m")
    assert ran.code == 0
    assert "The audit log has no such call in that period." in ran.out


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (["--max-attempts", "0"], "max_attempts: must be a whole number from 1 to 1000 (got 0)"),
        (["--max-delay", "0.5"], "max_delay: is below base_delay"),
        (["--max-attempts", "2", "--since", "soon"], "--since: is neither a duration nor a time"),
        (["--max-attempts", "2", "--since", "2999-01-01T00:00:00Z"], "--since: is in the future"),
        ([], "policy simulate: needs a change to the policy"),
    ],
)
@pytest.mark.usefixtures("history")
def test_invalid_simulated_policy_is_rejected(option: list[str], problem: str) -> None:
    ran = run_in_process(*SIMULATE, *option)
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
