"""Proposes changes to a policy from past calls. A person decides whether to apply them.

The number of attempts follows from the successes by attempt: attempts that never helped are
dropped once enough calls made them, and attempts are added while the last one still helps. Delays
are lengthened only if the replay keeps every success with fewer retries. Shorter delays are never
proposed: the log does not show whether an earlier attempt would have succeeded.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from attrs import evolve, frozen

from tileferry.domain.retry.classify import Final
from tileferry.domain.retry.decision import GiveUp, GiveUpReason, RetryAt
from tileferry.domain.retry.policy import (
    ATTEMPTS_MAX,
    DELAY_S_MAX,
    BackoffKind,
    RetryPolicy,
)
from tileferry.domain.retry.recovery import AwsStandardEffect, PolicyEffect
from tileferry.domain.retry.what_if import PastCall

CALLS_MIN = 30
"""Calls with a retryable failure that a proposal needs."""
REACHED_MIN = 60
"""If none of 60 calls succeeded, the chance of success is below 5 % with 95 % confidence (the rule
of three: 3 / 60)."""
LAST_ATTEMPT_SHARE_MIN = 0.1
"""The share of last attempts that must succeed for more attempts to be proposed."""
_LEFT_SHARE = 0.1
"""The share of exhausted calls that may still fail with the added attempts."""
_ATTEMPTS_KEPT_MIN = 2
"""One retry is always kept: a log of one outage says nothing about the next fault."""
_DELAY_FACTORS = (4.0, 2.0)
_RETRIES_SAVED_MIN = 0.1
_WAITING_ADDED_MAX = 0.1


@frozen(kw_only=True)
class AttemptSuccess:
    """How often one attempt was made, and helped."""

    attempt: int
    reached: int
    """Calls that made the attempt."""
    succeeded: int
    mean_wait_s: float
    """The mean wait before it."""

    @property
    def share(self) -> float:
        """The share of calls that made the attempt and succeeded with it."""
        return self.succeeded / self.reached


@frozen(kw_only=True)
class PolicyChange:
    """One changed field of a policy, and the reason."""

    field_name: str
    before: float
    after: float
    reason: str


@frozen(kw_only=True)
class TuningReport:
    """What the log says about a policy, the proposed changes, and their simulated effect."""

    name: str
    policy: RetryPolicy
    """The current policy."""
    calls: int
    """Calls with a retryable failure."""
    attempts: tuple[AttemptSuccess, ...] = ()
    """Successes by attempt, from the second attempt on."""
    changes: tuple[PolicyChange, ...] = ()
    today: PolicyEffect
    proposed: PolicyEffect | None = None
    """``None`` if nothing is proposed."""
    aws_standard: PolicyEffect

    @property
    def calls_missing(self) -> int:
        """How many more calls a proposal needs."""
        return max(0, CALLS_MIN - self.calls)


def tune_policy(
    name: str, policy: RetryPolicy, calls: Sequence[PastCall], *, tunable: Collection[str]
) -> TuningReport:
    """Return what past calls say about a policy; only ``tunable`` fields are changed."""
    affected = [call for call in calls if not isinstance(call.records[0].failure.error, Final)]
    attempts = tuple(_count_attempts(affected))
    changes: tuple[PolicyChange, ...] = ()
    if len(affected) >= CALLS_MIN:
        changes = tuple(_propose(policy, affected, attempts, tunable))
    proposed = apply_policy_changes(policy, changes)
    return TuningReport(
        name=name,
        policy=policy,
        calls=len(affected),
        attempts=attempts,
        changes=changes,
        today=_replay_all(PolicyEffect(policy), affected),
        proposed=_replay_all(PolicyEffect(proposed), affected) if changes else None,
        aws_standard=_replay_all(AwsStandardEffect(), affected),
    )


def apply_policy_changes(policy: RetryPolicy, changes: Sequence[PolicyChange]) -> RetryPolicy:
    """Return the policy with its changes."""
    values: dict[str, Any] = {change.field_name: change.after for change in changes}
    return evolve(policy, **values)


def _count_attempts(calls: Sequence[PastCall]) -> Iterator[AttemptSuccess]:
    reached, succeeded = Counter[int](), Counter[int]()
    waits_s: defaultdict[int, float] = defaultdict(float)
    for call in calls:
        last = _get_last_attempt(call)
        reached.update(range(2, last + 1))
        succeeded[last] += call.succeeded
        for record in call.records:
            decision = record.decision
            if isinstance(decision, RetryAt) and decision.attempt > record.failure.attempt:
                waits_s[decision.attempt] += decision.delay_s
    for attempt in sorted(reached):
        yield AttemptSuccess(
            attempt=attempt,
            reached=reached[attempt],
            succeeded=succeeded[attempt],
            mean_wait_s=waits_s[attempt] / reached[attempt],
        )


def _get_last_attempt(call: PastCall) -> int:
    record = call.records[-1]
    decision = record.decision
    return decision.attempt if isinstance(decision, RetryAt) else record.failure.attempt


def _propose(
    policy: RetryPolicy,
    calls: Sequence[PastCall],
    attempts: Sequence[AttemptSuccess],
    tunable: Collection[str],
) -> Iterator[PolicyChange]:
    if "max_attempts" in tunable:
        change = _drop_attempts(policy, attempts) or _add_attempts(policy, calls, attempts)
        if change is not None:
            policy = apply_policy_changes(policy, [change])
            yield change
    if {"base_delay", "max_delay"} <= set(tunable):
        yield from _lengthen_delays(policy, calls)
    if "max_rate_limited" in tunable:
        yield from _allow_more_rate_limits(policy, calls)


def _drop_attempts(policy: RetryPolicy, attempts: Sequence[AttemptSuccess]) -> PolicyChange | None:
    """Propose to stop after the last attempt that ever helped, if enough calls went further."""
    useful = max((one.attempt for one in attempts if one.succeeded), default=1)
    kept = max(useful, _ATTEMPTS_KEPT_MIN)
    further = next((one for one in attempts if one.attempt == kept + 1), None)
    if further is None or further.reached < REACHED_MIN or kept >= policy.max_attempts:
        return None
    return PolicyChange(
        field_name="max_attempts",
        before=policy.max_attempts,
        after=kept,
        reason=f"no call succeeded after attempt {useful}, and {further.reached} went further",
    )


def _add_attempts(
    policy: RetryPolicy, calls: Sequence[PastCall], attempts: Sequence[AttemptSuccess]
) -> PolicyChange | None:
    """Propose more attempts if the last one still helps and calls run out of them."""
    last = next((one for one in attempts if one.attempt == policy.max_attempts), None)
    exhausted = _count_ends(calls, GiveUpReason.ATTEMPTS_EXHAUSTED)
    if last is None or last.reached < CALLS_MIN or not exhausted:
        return None
    if not LAST_ATTEMPT_SHARE_MIN <= last.share < 1:
        return None
    added = math.ceil(math.log(_LEFT_SHARE) / math.log1p(-last.share))
    after = min(policy.max_attempts + added, 2 * policy.max_attempts, ATTEMPTS_MAX)
    if after == policy.max_attempts:
        return None
    return PolicyChange(
        field_name="max_attempts",
        before=policy.max_attempts,
        after=after,
        reason=f"the last attempt still helped {last.succeeded} of {last.reached} calls, and"
        f" {exhausted} calls ran out of attempts",
    )


def _lengthen_delays(policy: RetryPolicy, calls: Sequence[PastCall]) -> Iterator[PolicyChange]:
    """Propose a longer first delay if it keeps every success with clearly fewer retries."""
    if policy.backoff is not BackoffKind.EXPONENTIAL or policy.base_delay == 0:
        return
    rescued = [call for call in calls if call.succeeded]  # of the others, the end is not known
    now = _replay_all(PolicyEffect(policy), rescued)
    for factor in _DELAY_FACTORS:
        base_delay = policy.base_delay * factor
        if base_delay > DELAY_S_MAX:
            continue
        max_delay = max(policy.max_delay, base_delay)
        longer = evolve(policy, base_delay=base_delay, max_delay=max_delay)
        then = _replay_all(PolicyEffect(longer), rescued)
        saved = now.retries - then.retries
        if (
            then.succeeded < now.succeeded
            or saved < _RETRIES_SAVED_MIN * now.retries
            or then.waited_s > (1 + _WAITING_ADDED_MAX) * now.waited_s
            or not saved
        ):
            continue
        reason = f"the same calls succeed with {saved} fewer retries"
        yield PolicyChange(
            field_name="base_delay", before=policy.base_delay, after=base_delay, reason=reason
        )
        if max_delay != policy.max_delay:
            yield PolicyChange(
                field_name="max_delay", before=policy.max_delay, after=max_delay, reason=reason
            )
        return


def _replay_all(effect: PolicyEffect, calls: Sequence[PastCall]) -> PolicyEffect:
    for call in calls:
        effect.add(call)
    return effect


def _allow_more_rate_limits(
    policy: RetryPolicy, calls: Sequence[PastCall]
) -> Iterator[PolicyChange]:
    """Propose more rate-limited waits if many calls run out of them."""
    ended = _count_ends(calls, GiveUpReason.RATE_LIMIT_EXHAUSTED)
    after = min(max(1, 2 * policy.max_rate_limited), ATTEMPTS_MAX)
    if ended < LAST_ATTEMPT_SHARE_MIN * len(calls) or after == policy.max_rate_limited:
        return
    yield PolicyChange(
        field_name="max_rate_limited",
        before=policy.max_rate_limited,
        after=after,
        reason=f"{ended} of {len(calls)} calls were still rate-limited after their last wait",
    )


def _count_ends(calls: Sequence[PastCall], reason: GiveUpReason) -> int:
    decisions = (call.records[-1].decision for call in calls)
    return sum(isinstance(one, GiveUp) and one.reason is reason for one in decisions)
