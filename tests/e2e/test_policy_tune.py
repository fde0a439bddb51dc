"""``tileferry policy tune``, on an audit history that a download in bad weather wrote."""

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.audit_events import create_call_events
from support.download_operator import DownloadOperator
from support.operator import run_in_process
from support.provider import API_KEY, RunningProvider

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.retry import Retryable, RetryCategory
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import list_policies

AREA = ("--bbox", "36.0,50.0,36.3,50.2", "--zoom", "14")
TUNE = ("policy", "tune")


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> Iterator[DownloadOperator]:
    settings = {
        "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
        "TILEFERRY_C11_RETRY_BUDGET_CAPACITY": "1000",
        "TILEFERRY_C11_MAX_CONCURRENT_REQUESTS": "32",
    }
    yield DownloadOperator(tmp_path, database_url, reference_provider.url, settings)
    reference_provider.reset()


def test_bad_weather_history_is_tuned(
    operator: DownloadOperator, reference_provider: RunningProvider
) -> None:
    reference_provider.set_faults({"fault": "503", "rate": 0.25})
    ran = operator.run_in_process(
        "download", *AREA, "--flight", "F1", "--sector", "stable_rear", "--json"
    )
    assert ran.code == 0, ran.err
    body = operator.run_in_process(*TUNE, "--json").json
    assert body["schema"] == "tileferry.policy.tune.v1"
    download = body["policies"]["DOWNLOAD"]
    assert download["calls"] >= download["calls_needed"] == 30
    second = download["attempts"][0]
    assert (second["attempt"], second["reached"]) == (2, download["calls"])
    assert second["mean_wait_s"] >= 1
    today, aws = download["effects"]["today"], download["effects"]["aws_standard"]
    assert (today["succeeded"], today["given_up"]) == (download["calls"], 0)
    assert aws["succeeded"] < today["succeeded"]  # it gives up before a second has passed
    assert body["policies"]["KV_GET"]["calls"] == 0
    shown = operator.run_in_process(*TUNE, "--category", "download")
    assert shown.code == 0, shown.err
    assert f"{download['calls']} calls that failed at least once" in shown.out
    assert "They may have one cause" in shown.out
    assert "AWS standard" in shown.out


@pytest.fixture
def history(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store 140 calls over ten hours: attempts after the second never help."""
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", database_url)
    start_s = (datetime.now(UTC) - timedelta(hours=11)).timestamp()
    events = []
    for number in range(140):
        failures = 1 if number % 2 else 9
        clock = ManualClock(start_s + 257 * number)
        events += create_call_events([Retryable()] * failures, clock=clock, key=f"k{number}")
    for number in range(3):
        clock = ManualClock(start_s)
        events += create_call_events(
            [Retryable()], clock=clock, key=f"g{number}", category=RetryCategory.KV_GET
        )
    events.sort(key=lambda event: event.timestamp)
    PostgresAuditLog(database=database).emit(events)


@pytest.mark.usefixtures("history")
def test_proposal_is_printed_as_settings_and_applied_by_a_person(tmp_path: Path) -> None:
    body = run_in_process(*TUNE, "--json").json
    api = body["policies"]["API_REQUEST"]
    assert api["settings"] == {"retry.API_REQUEST.max_attempts": 2}
    assert [(one["field"], one["from"], one["to"]) for one in api["changes"]] == [
        ("max_attempts", 3, 2)
    ]
    effects = api["effects"]
    assert effects["proposed"]["succeeded"] == effects["today"]["succeeded"] == 70
    assert effects["proposed"]["retries"] < effects["today"]["retries"]
    assert tomllib.loads(body["configuration"]) == {
        "tileferry": {"retry": {"API_REQUEST": {"max_attempts": 2}}}
    }
    shown = run_in_process(*TUNE)
    assert "max_attempts: 3 → 2; no call succeeded after attempt 2" in shown.out
    assert "[tileferry.retry.API_REQUEST]\nmax_attempts = 2\n" in shown.out
    assert "Too few calls for a proposal (30 needed): KV_GET 3." in shown.out
    file = tmp_path / "proposed.toml"
    file.write_text(body["configuration"])
    assert list_policies(load_config(file))["API_REQUEST"].policy.max_attempts == 2


@pytest.mark.usefixtures("database")
def test_empty_history_says_what_is_needed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", database_url)
    shown = run_in_process(*TUNE, "--category", "RUN")
    assert shown.code == 0, shown.err
    assert "no retried call in that period; 30 are needed" in shown.out


def test_unknown_category_is_rejected() -> None:
    ran = run_in_process(*TUNE, "--category", "nope")
    assert ran.code == 2
    assert "--category" in ran.err


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("DOWNLOAD", {"c11.max_5xx_retries": 3}),
        ("UPLOAD", {"c11.max_in_call_retries": 3}),
        ("RUN", {"worker.max_attempts": 4}),
        ("PARTITION", {"partitions.max_attempts": 4}),
        ("KV_GET", {"retry.KV_GET.max_attempts": 4}),
    ],
)
def test_every_policy_names_its_settings(name: str, settings: dict[str, int]) -> None:
    named = list_policies(load_config(None))[name]
    assert dict([named.to_setting("max_attempts", 4)]) == settings
