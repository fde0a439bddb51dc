"""What a deployment may change about retries and their audit."""

from pathlib import Path

import attrs
import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import POLICY_MATRIX, BackoffKind, RetryCategory, RetryPolicy
from tileferry.entrypoints.config import Config, SinkName, load_config
from tileferry.entrypoints.config.retry_overrides import (
    CategoryConfig,
    RetryConfig,
    build_alert_thresholds,
    build_category_policies,
)


@pytest.fixture(autouse=True)
def in_tmp_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def load_text(text: str) -> Config:
    file = Path("tileferry.toml")
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def test_every_category_and_policy_field_is_configurable() -> None:
    assert [field.name for field in attrs.fields(RetryConfig)] == list(RetryCategory.__members__)
    of_policy = {field.name for field in attrs.fields(RetryPolicy)}
    settable = {field.name for field in attrs.fields(CategoryConfig)}
    assert settable - of_policy == {"alert_retries_per_minute"}
    assert of_policy - settable == {"name", "retryable_exceptions", "non_retryable_exceptions"}


def test_default_policies_are_the_policy_matrix() -> None:
    config = load_config()
    assert build_category_policies(config.retry) == POLICY_MATRIX
    assert config.audit.sinks == [SinkName.POSTGRES]
    assert config.audit.fail_closed is False
    assert build_alert_thresholds(None, config.retry).get_limit(RetryCategory.KV_GET) is None


def test_table_changes_only_its_category() -> None:
    config = load_text(
        "[tileferry.retry.API_REQUEST]\nmax_attempts = 7\nbase_delay = 2\nbackoff = 'power'\n"
        "jitter_enabled = false\ndeadline_s = 90.5\n"
    )
    policies = build_category_policies(config.retry)
    assert policies[RetryCategory.API_REQUEST] == RetryPolicy(
        max_attempts=7,
        base_delay=2.0,
        backoff=BackoffKind.POWER,
        jitter_enabled=False,
        deadline_s=90.5,
    )
    assert {**policies, RetryCategory.API_REQUEST: None} == {
        **POLICY_MATRIX,
        RetryCategory.API_REQUEST: None,
    }


def test_environment_overrides_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_RETRY_KV_GET_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("TILEFERRY_AUDIT_SINKS", "jsonl:log")
    config = load_text("[tileferry.retry.KV_GET]\nmax_attempts = 4\nmax_delay = 20\n")
    policy = build_category_policies(config.retry)[RetryCategory.KV_GET]
    assert (policy.max_attempts, policy.max_delay) == (9, 20.0)
    assert config.audit.sinks == [SinkName.JSONL, SinkName.LOG]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("retry.KV_GET]\nmax_attempts = 0", "retry.KV_GET.max_attempts: must be a whole number"),
        ("retry.KV_GET]\nmax_attempts = 2.5", "retry.KV_GET.max_attempts: must be a whole number"),
        ("retry.KV_GET]\nmax_attempts = 'x'", "retry.KV_GET.max_attempts: invalid value"),
        ("retry.KV_GET]\nbase_delay = -1", "retry.KV_GET.base_delay: must be a finite number"),
        ("retry.KV_GET]\nbase_delay = nan", "retry.KV_GET.base_delay: must be a finite number"),
        ("retry.KV_GET]\nmax_delay = 0.1", "retry.KV_GET.max_delay: is below base_delay, 0.5 s"),
        ("retry.KV_GET]\nbackoff = 'linear'", "retry.KV_GET.backoff: invalid value"),
        ("retry.KV_GET]\nmax_atempts = 2", "retry.KV_GET.max_atempts"),
        ("retry.KV_GOT]\nmax_attempts = 2", "retry.KV_GOT: is not a setting"),
        (
            "retry.KV_GET]\nalert_retries_per_minute = -1",
            "retry.KV_GET.alert_retries_per_minute: must be a finite number",
        ),
        ("audit]\nalert_retries_per_minute = inf", "audit.alert_retries_per_minute: must be"),
        ("audit]\nsinks = ['kafka']", "audit.sinks: invalid value"),
        ("audit]\nsinks = []", "audit.sinks: must name at least one sink"),
        ("audit]\nfail_closed = 'maybe'", "audit.fail_closed: invalid value"),
    ],
)
def test_invalid_retry_setting_is_rejected_by_path(text: str, problem: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        load_text(f"[tileferry.{text}\n")
    assert problem in str(refusal.value)


def test_category_alert_threshold_overrides_default() -> None:
    config = load_text(
        "[tileferry.audit]\nalert_retries_per_minute = 5\n"
        "[tileferry.retry.KV_GET]\nalert_retries_per_minute = 0.5\n"
    )
    thresholds = build_alert_thresholds(config.audit.alert_retries_per_minute, config.retry)
    assert thresholds.get_limit(RetryCategory.API_REQUEST) == 5
    assert thresholds.get_limit(RetryCategory.KV_GET) == 0.5


@pytest.mark.parametrize(
    "name", ["REPLAY_VALIDATION", "replay_replay_validation", " Replay_Validation"]
)
def test_category_is_found_by_name_or_code(name: str) -> None:
    assert RetryCategory.parse(name) is RetryCategory.REPLAY_VALIDATION


def test_unknown_category_is_rejected_with_known_names() -> None:
    with pytest.raises(
        InvalidValueError, match="category: is not a category of retries"
    ) as refusal:
        RetryCategory.parse("KV_GOT")
    assert "KV_GET" in refusal.value.remedy
