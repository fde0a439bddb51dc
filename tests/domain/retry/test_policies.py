"""The figures of the specs' policies, as tables."""

import pytest
from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    PARTITION_POLICY,
    POLICY_MATRIX,
    RUN_POLICY,
    BackoffKind,
    Failure,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
    build_schedule,
    build_upload_policy,
    compute_jittered_delay,
    compute_nominal_delay,
    decide,
    limit_to_run,
)

SPEC2_MATRIX = [
    # category, code, attempts, base, max
    ("NATS_CONNECT", "RETRY_NATS_CONNECT", 5, 1.0, 30.0),
    ("NATS_PUBLISH", "RETRY_NATS_PUBLISH", 3, 0.5, 10.0),
    ("NATS_SUBSCRIBE", "RETRY_NATS_SUBSCRIBE", 3, 0.5, 10.0),
    ("NATS_STREAM_CREATE", "RETRY_NATS_STREAM_CREATE", 2, 2.0, 60.0),
    ("KV_CREATE", "RETRY_KV_CREATE", 2, 1.0, 30.0),
    ("KV_GET", "RETRY_KV_GET", 3, 0.5, 10.0),
    ("KV_PUT", "RETRY_KV_PUT", 3, 0.5, 10.0),
    ("KV_DELETE", "RETRY_KV_DELETE", 2, 1.0, 30.0),
    ("EXECUTION_INTENT", "RETRY_EXECUTION_INTENT", 2, 2.0, 60.0),
    ("EXECUTION_CONTAINMENT", "RETRY_EXECUTION_CONTAINMENT", 2, 2.0, 60.0),
    ("EXECUTION_EXPIRATION", "RETRY_EXECUTION_EXPIRATION", 1, 1.0, 30.0),
    ("APPROVAL_CHECK", "RETRY_APPROVAL_CHECK", 3, 1.0, 30.0),
    ("APPROVAL_GRANT", "RETRY_APPROVAL_GRANT", 2, 2.0, 60.0),
    ("REPLAY_PROCESSING", "REPLAY_REPLAY_PROCESSING", 1, 1.0, 30.0),
    ("REPLAY_VALIDATION", "REPLAY_REPLAY_VALIDATION", 2, 1.0, 30.0),
    ("API_REQUEST", "RETRY_API_REQUEST", 3, 1.0, 30.0),
    ("API_VALIDATION", "RETRY_API_VALIDATION", 2, 0.5, 10.0),
]


@pytest.mark.parametrize(("name", "code", "attempts", "base", "cap"), SPEC2_MATRIX)
def test_spec2_policy_matrix(name: str, code: str, attempts: int, base: float, cap: float) -> None:
    category = RetryCategory[name]
    assert category.value == code
    assert POLICY_MATRIX[category] == RetryPolicy(
        max_attempts=attempts,
        base_delay=base,
        max_delay=cap,
        backoff_multiplier=2.0,
        jitter_enabled=True,
        jitter_factor=0.1,
    )


def test_spec2_matrix_covers_exactly_17_categories() -> None:
    assert len(SPEC2_MATRIX) == len(RetryCategory) == len(POLICY_MATRIX) == 17
    assert {name for name, *_ in SPEC2_MATRIX} == set(RetryCategory.__members__)


def test_matrix_is_immutable() -> None:
    with pytest.raises(TypeError):
        POLICY_MATRIX[RetryCategory.KV_GET] = RetryPolicy()  # type: ignore[index]  # the point


def _compute_delays(policy: RetryPolicy) -> list[float]:
    return [
        compute_jittered_delay(policy, attempt, "k") for attempt in range(1, policy.max_attempts)
    ]


def test_spec5_download_waits_1_2_4_4_seconds_in_5_attempts() -> None:
    assert DOWNLOAD_POLICY.max_attempts == 5
    assert _compute_delays(DOWNLOAD_POLICY) == [1.0, 2.0, 4.0, 4.0]


def test_spec5_download_honours_one_429_up_to_300_seconds() -> None:
    assert DOWNLOAD_POLICY.max_rate_limited == 1
    assert DOWNLOAD_POLICY.max_retry_after_s == 300.0


def test_spec4_run_defaults() -> None:
    assert RUN_POLICY.max_attempts == 8
    assert RUN_POLICY.base_delay == 60.0
    assert RUN_POLICY.max_delay == 3600.0
    assert RUN_POLICY.backoff_multiplier == 2.0
    assert RUN_POLICY.max_rate_limited == 100
    assert RUN_POLICY.deadline_s == 30 * 86_400
    assert _compute_delays(RUN_POLICY) == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0]


def test_partitions_wait_5_minutes_30_minutes_2_hours_with_jitter() -> None:
    nominal = [compute_nominal_delay(PARTITION_POLICY, attempt) for attempt in range(1, 4)]
    assert nominal == [300.0, 1800.0, 7200.0]
    assert PARTITION_POLICY.max_attempts == 4
    assert PARTITION_POLICY.jitter_enabled


def test_in_call_retries_wait_2_4_8_seconds() -> None:
    policy = build_upload_policy(3, 2.0, 60.0)
    assert policy == RetryPolicy(
        max_attempts=4,
        base_delay=2.0,
        max_delay=60.0,
        backoff=BackoffKind.POWER,
        jitter_enabled=False,
    )
    assert _compute_delays(policy) == [2.0, 4.0, 8.0]


def test_sixth_retry_waits_10_second_cap_not_64() -> None:
    policy = build_upload_policy(10, 2.0, 10.0)
    assert compute_jittered_delay(policy, 6, "k") == 10.0
    assert _compute_delays(policy) == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]


def test_spec1_zero_in_call_retries_means_one_attempt() -> None:
    assert build_upload_policy(0, 2.0, 60.0).max_attempts == 1
    with pytest.raises(InvalidValueError, match=r"max_in_call_retries: must be 0 .*got -1"):
        build_upload_policy(-1, 2.0, 60.0)


def test_call_within_run_has_short_deadline() -> None:
    policy = limit_to_run(DOWNLOAD_POLICY)
    patient = Failure(key="k", attempt=1, error=RateLimited(retry_after_s=45.0))
    short = Failure(key="k", attempt=1, error=RateLimited(retry_after_s=5.0))
    assert decide(policy, patient) == GiveUp(reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=1)
    assert isinstance(decide(policy, short), RetryAt)
    waits = build_schedule(policy, Retryable())
    assert [wait.delay_s for wait in waits.waits] == [1.0, 2.0, 4.0, 4.0]
    assert limit_to_run(evolve(DOWNLOAD_POLICY, deadline_s=5.0)).deadline_s == 5.0
