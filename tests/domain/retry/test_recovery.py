"""Past calls replayed by time: each recovers when it did."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.past_calls import create_past_call, create_past_calls
from support.strategies import error_classes, policies

from tileferry.domain.retry import (
    AWS_STANDARD,
    AwsStandardEffect,
    ErrorClass,
    Final,
    PolicyEffect,
    RateLimited,
    Retryable,
    RetryPolicy,
    WhatIfOutcome,
    build_schedule,
    compute_jittered_delay,
    replay_recovery,
)

PLAIN = RetryPolicy(max_attempts=5, base_delay=1.0, jitter_enabled=False)  # 1, 2, 4, 8 s
E = Retryable()


@given(
    policies(),
    st.lists(error_classes, min_size=1, max_size=6),
    st.floats(0, 100),
    st.text(max_size=5),
)
def test_replay_under_the_same_policy_gives_the_recorded_result(
    policy: RetryPolicy, errors: list[ErrorClass], call_s: float, key: str
) -> None:
    call = create_past_call(policy, errors, key=key, call_s=call_s)
    again = replay_recovery(policy, call)
    assert again.outcome is (WhatIfOutcome.SUCCEEDS if call.succeeded else WhatIfOutcome.GIVEN_UP)
    assert again.retries == len(call.records) - (not call.succeeded)
    assert again.waited_s == pytest.approx(call.waited_s)


@given(policies(), policies(), st.lists(error_classes, min_size=1, max_size=6), st.floats(0, 100))
def test_replay_ends_within_the_limits_of_the_policy(
    recorded: RetryPolicy, other: RetryPolicy, errors: list[ErrorClass], call_s: float
) -> None:
    again = replay_recovery(other, create_past_call(recorded, errors, call_s=call_s))
    assert again.retries <= other.max_attempts - 1 + other.max_rate_limited
    assert again.waited_s >= 0


def test_call_recovers_when_it_did() -> None:
    """Recovered after 1 + 2 + 4 s: shorter waits need more attempts, longer ones fewer."""
    call = create_past_call(PLAIN, [E, E, E])
    short = replay_recovery(evolve(PLAIN, backoff_multiplier=1.0, max_attempts=10), call)
    assert (short.outcome, short.retries, short.waited_s) == (WhatIfOutcome.SUCCEEDS, 7, 7.0)
    long = replay_recovery(evolve(PLAIN, base_delay=10.0), call)
    assert (long.outcome, long.retries, long.waited_s) == (WhatIfOutcome.SUCCEEDS, 1, 10.0)
    few = replay_recovery(evolve(PLAIN, max_attempts=3), call)
    assert (few.outcome, few.retries) == (WhatIfOutcome.GIVEN_UP, 2)


def test_attempt_after_the_last_failure_has_an_unknown_result() -> None:
    call = create_past_call(PLAIN, [E] * 5)
    assert not call.succeeded
    more = replay_recovery(evolve(PLAIN, max_attempts=6), call)
    assert (more.outcome, more.retries) == (WhatIfOutcome.UNKNOWN, 5)
    final = create_past_call(PLAIN, [E, Final()])
    for policy in (PLAIN, evolve(PLAIN, base_delay=20.0)):
        assert replay_recovery(policy, final).outcome is WhatIfOutcome.GIVEN_UP


def test_effect_counts_every_call_once() -> None:
    effect = PolicyEffect(evolve(PLAIN, max_attempts=3))
    for call in [*create_past_calls(PLAIN, [1, 2, 3]), create_past_call(PLAIN, [E, Final()])]:
        effect.add(call)
    assert (effect.succeeded, effect.given_up, effect.unknown) == (2, 2, 0)
    assert (effect.retries, effect.waited_s) == (1 + 2 + 2 + 1, 1.0 + 3.0 + 3.0 + 1.0)
    more = PolicyEffect(evolve(PLAIN, max_attempts=6))
    more.add(create_past_call(PLAIN, [E] * 5))
    assert (more.succeeded, more.given_up, more.unknown) == (0, 0, 1)


# The standard mode of the AWS SDKs


@given(st.text(max_size=20))
def test_aws_waits_are_random_up_to_one_and_two_seconds(key: str) -> None:
    assert 0 <= compute_jittered_delay(AWS_STANDARD, 1, key) <= 1
    assert 0 <= compute_jittered_delay(AWS_STANDARD, 2, key) <= 2
    assert compute_jittered_delay(AWS_STANDARD, 20, key) <= 20
    assert build_schedule(AWS_STANDARD, E).calls == 3


def test_aws_quota_ends_retries_and_is_refilled_by_successes() -> None:
    hopeless = create_past_call(PLAIN, [E] * 5)
    effect = AwsStandardEffect()
    for _ in range(60):
        effect.add(hopeless)
    assert (effect.retries, effect.quota) == (100, 0)  # 500 tokens at 5 each
    assert effect.given_up == 60
    calm = AwsStandardEffect()
    quick = create_past_call(evolve(PLAIN, base_delay=0.0), [E])
    for _ in range(200):
        calm.add(quick)
    assert (calm.succeeded, calm.retries, calm.quota) == (200, 200, 500)


def test_aws_charges_a_rate_limit_as_an_attempt() -> None:
    limited = create_past_call(PLAIN, [RateLimited(retry_after_s=60.0)])
    effect = AwsStandardEffect()
    effect.add(limited)
    assert (effect.given_up, effect.retries) == (1, 2)
    assert replay_recovery(PLAIN, limited).outcome is WhatIfOutcome.SUCCEEDS
