"""Replays past calls under another policy and compares the results.

Each call is assumed to fail in the same way and to take as long as it did. Whether a call that was
given up would have succeeded on one more attempt is unknown, and reported as such.
"""

from enum import StrEnum

from attrs import define, evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.decision import RetryAt, decide
from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.retry.record import DecisionRecord


@frozen(kw_only=True)
class PastCall:
    """A call that failed at least once, and its result."""

    records: tuple[DecisionRecord, ...] = field()
    """Its failures, in order."""
    succeeded: bool

    @records.validator
    def _check_records(self, _attribute: object, value: tuple[DecisionRecord, ...]) -> None:
        if not value:
            raise InvalidValueError(
                field="PastCall.records", value=value, problem="must hold at least one failure"
            )

    @property
    def waited_s(self) -> float:
        """The total of its waits."""
        return sum(_get_delay(record) for record in self.records)


class WhatIfOutcome(StrEnum):
    """The result of a past call under another policy."""

    SUCCEEDS = "succeeds"
    GIVEN_UP = "given_up"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class ReplayedCall:
    """A past call under another policy."""

    fate: WhatIfOutcome
    waited_s: float
    """The total of its waits; if the result is unknown, up to the last known failure."""


def replay_call(policy: RetryPolicy, call: PastCall) -> ReplayedCall:
    """Decide each failure of a past call again under another policy."""
    attempt, rate_limited, elapsed_s, waited_s = 1, 0, 0.0, 0.0
    ended_s = 0.0
    for record in call.records:
        failure = record.failure
        # The call itself takes as long as recorded; only the waits before it differ.
        elapsed_s += max(0.0, failure.elapsed_s - ended_s)
        decision = decide(
            policy,
            evolve(failure, attempt=attempt, rate_limited=rate_limited, elapsed_s=elapsed_s),
        )
        if not isinstance(decision, RetryAt):
            return ReplayedCall(fate=WhatIfOutcome.GIVEN_UP, waited_s=waited_s)
        attempt, rate_limited = decision.attempt, decision.rate_limited
        elapsed_s += decision.delay_s
        waited_s += decision.delay_s
        ended_s = failure.elapsed_s + _get_delay(record)
    return ReplayedCall(
        fate=WhatIfOutcome.SUCCEEDS if call.succeeded else WhatIfOutcome.UNKNOWN, waited_s=waited_s
    )


@define
class WhatIfSummary:
    """The totals of many past calls under another policy."""

    policy: RetryPolicy
    calls: int = field(default=0, init=False)
    succeeded: int = field(default=0, init=False)
    """Calls that succeeded after a retry."""
    still_succeed: int = field(default=0, init=False)
    given_up: int = field(default=0, init=False)
    """Calls that were given up."""
    still_given_up: int = field(default=0, init=False)
    waited_s: float = field(default=0.0, init=False)
    would_wait_s: float = field(default=0.0, init=False)

    @property
    def lost(self) -> int:
        """Calls that succeeded but would have been given up earlier."""
        return self.succeeded - self.still_succeed

    @property
    def unknown(self) -> int:
        """Calls that were given up but would have had at least one more attempt."""
        return self.given_up - self.still_given_up

    def add(self, call: PastCall) -> None:
        again = replay_call(self.policy, call)
        self.calls += 1
        self.waited_s += call.waited_s
        self.would_wait_s += again.waited_s
        if call.succeeded:
            self.succeeded += 1
            self.still_succeed += again.fate is WhatIfOutcome.SUCCEEDS
        else:
            self.given_up += 1
            self.still_given_up += again.fate is WhatIfOutcome.GIVEN_UP


def _get_delay(record: DecisionRecord) -> float:
    return record.decision.delay_s if isinstance(record.decision, RetryAt) else 0.0
