"""Replays past calls by time: when would another policy have succeeded?

A call is assumed to recover when it did: attempts before that time fail as the recorded ones did,
and attempts from then on succeed. Whether an earlier attempt would have succeeded, or a later one
after the last recorded failure, is not in the log; the first is counted as a failure, the second as
unknown.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from attrs import define, evolve, field, frozen

from tileferry.domain.retry.classify import ErrorClass, Final, RateLimited, Retryable
from tileferry.domain.retry.decision import Failure, RetryAt, decide
from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.retry.what_if import PastCall, WhatIfOutcome

_ROUNDING_S = 1e-6


@frozen(kw_only=True)
class RecoveryReplay:
    """A past call under another policy."""

    outcome: WhatIfOutcome
    retries: int
    waited_s: float


@frozen
class _RecordedAttempt:
    start_s: float
    duration_s: float
    failure: Failure


def replay_recovery(
    policy: RetryPolicy,
    call: PastCall,
    *,
    may_retry: Callable[[], bool] = lambda: True,
    classify: Callable[[ErrorClass], ErrorClass] = lambda error: error,
) -> RecoveryReplay:
    """Replay a call under a policy.

    ``may_retry`` is asked before each retry, and ``classify`` may judge an error differently.
    """
    timeline = _Timeline(call)
    attempt, rate_limited, retries, start_s, waited_s = 1, 0, 0, 0.0, 0.0
    while True:
        end = partial(RecoveryReplay, retries=retries, waited_s=waited_s)
        recorded = timeline.find_failure(start_s, retries)
        if recorded is None:
            return end(outcome=WhatIfOutcome.SUCCEEDS if call.succeeded else WhatIfOutcome.UNKNOWN)
        failure = evolve(
            recorded.failure,
            attempt=attempt,
            rate_limited=rate_limited,
            elapsed_s=start_s + recorded.duration_s,
            error=classify(recorded.failure.error),
        )
        decision = decide(policy, failure)
        if not isinstance(decision, RetryAt) or not may_retry():
            return end(outcome=WhatIfOutcome.GIVEN_UP)
        attempt, rate_limited = decision.attempt, decision.rate_limited
        retries, waited_s = retries + 1, waited_s + decision.delay_s
        start_s = failure.elapsed_s + decision.delay_s


class _Timeline:
    """When the attempts of a call began and failed, and when it recovered."""

    def __init__(self, call: PastCall) -> None:
        self.attempts: list[_RecordedAttempt] = []
        start_s = 0.0
        for record in call.records:
            failure = record.failure
            duration_s = max(0.0, failure.elapsed_s - start_s)
            self.attempts.append(_RecordedAttempt(start_s, duration_s, failure))
            delay_s = record.decision.delay_s if isinstance(record.decision, RetryAt) else 0.0
            start_s += duration_s + delay_s
        last = self.attempts[-1]
        self._failing_until_s = start_s if call.succeeded else last.start_s
        self._fails_forever = isinstance(last.failure.error, Final)

    def find_failure(self, start_s: float, earlier: int) -> _RecordedAttempt | None:
        """Return how an attempt fails that begins at ``start_s``, after ``earlier`` others.

        ``None`` means that it succeeds, or that the log does not tell. Attempts without a wait
        between them are distinguished by their number.
        """
        last = len(self.attempts) - 1
        if start_s >= self._failing_until_s - _ROUNDING_S and not self._fails_forever:
            is_recorded = start_s <= self.attempts[last].start_s + _ROUNDING_S and earlier <= last
            if not is_recorded:
                return None
        begun = bisect_right(self.attempts, start_s + _ROUNDING_S, key=lambda one: one.start_s) - 1
        same = bisect_left(
            self.attempts, self.attempts[begun].start_s - _ROUNDING_S, key=lambda one: one.start_s
        )
        return self.attempts[min(max(earlier, same), begun)]


@define
class PolicyEffect:
    """The totals of past calls under a policy."""

    policy: RetryPolicy
    succeeded: int = field(default=0, init=False)
    given_up: int = field(default=0, init=False)
    unknown: int = field(default=0, init=False)
    """Calls with an attempt after their last recorded failure."""
    retries: int = field(default=0, init=False)
    waited_s: float = field(default=0.0, init=False)

    def add(self, call: PastCall) -> None:
        """Replay a call, and count its result."""
        self._count(replay_recovery(self.policy, call))

    def _count(self, replay: RecoveryReplay) -> None:
        self.succeeded += replay.outcome is WhatIfOutcome.SUCCEEDS
        self.given_up += replay.outcome is WhatIfOutcome.GIVEN_UP
        self.unknown += replay.outcome is WhatIfOutcome.UNKNOWN
        self.retries += replay.retries
        self.waited_s += replay.waited_s


AWS_STANDARD = RetryPolicy(
    name="AWS_STANDARD",
    max_attempts=3,
    base_delay=0.5,  # with jitter of ±100 %, uniform in [0, 1] as the first wait of the SDK
    max_delay=20.0,
    backoff_multiplier=2.0,
    jitter_factor=1.0,
)
"""The standard mode of the AWS SDKs: ``rand(0, 1) * min(2 ** (attempt - 1), 20)`` seconds."""
_QUOTA_CAPACITY = 500
_QUOTA_COST = 5


@define
class AwsStandardEffect(PolicyEffect):
    """The totals of past calls under the standard mode of the AWS SDKs, with its retry quota.

    A retry costs 5 of 500 tokens, and a success after a retry returns its cost; without tokens
    there is no retry. Timeouts cost 10, but the log does not tell them apart, and the token that a
    first attempt earns is missing, because calls that succeed at once are not in the log. A rate
    limit is an error like any other.
    """

    policy: RetryPolicy = field(default=AWS_STANDARD)
    quota: int = field(default=_QUOTA_CAPACITY, init=False)

    def add(self, call: PastCall) -> None:
        """Replay a call, and count its result."""
        replay = replay_recovery(
            self.policy, call, may_retry=self._take_tokens, classify=_ignore_rate_limit
        )
        if replay.outcome is WhatIfOutcome.SUCCEEDS and replay.retries:
            self.quota = min(_QUOTA_CAPACITY, self.quota + _QUOTA_COST)
        self._count(replay)

    def _take_tokens(self) -> bool:
        if self.quota < _QUOTA_COST:
            return False
        self.quota -= _QUOTA_COST
        return True


def _ignore_rate_limit(error: ErrorClass) -> ErrorClass:
    return Retryable() if isinstance(error, RateLimited) else error
