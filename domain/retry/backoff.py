"""How long to wait after a failed attempt."""

from hashlib import sha256

from tileferry.domain.retry.policy import BackoffKind, RetryPolicy

_JITTER_SEED = b"tileferry-jitter-v1\0"


def nominal_delay(policy: RetryPolicy, attempt: int) -> float:
    """Seconds to wait after attempt number ``attempt`` (from 1), capped, before jitter."""
    if policy.base_delay == 0:  # nothing stays nothing, also where the growth overflows
        return 0.0
    try:
        if policy.backoff is BackoffKind.POWER:
            grown = policy.base_delay**attempt
        else:
            grown = policy.base_delay * policy.backoff_multiplier ** (attempt - 1)
    except OverflowError:  # beyond any cap
        return policy.max_delay
    return min(grown, policy.max_delay)


def jittered_delay(policy: RetryPolicy, attempt: int, key: str) -> float:
    """Seconds to wait after attempt number ``attempt``, spread by the policy's jitter.

    The spread depends on ``key`` and ``attempt`` alone, so a decision can be recomputed exactly
    and callers with different keys still do not come back at the same moment. What would pass
    ``max_delay`` is mirrored below it: the maximum holds, and callers at the cap stay spread.
    """
    nominal = nominal_delay(policy, attempt)
    if not policy.jitter_enabled:
        return nominal
    delay = nominal + nominal * policy.jitter_factor * _spread(key, attempt)
    return delay if delay <= policy.max_delay else 2 * policy.max_delay - delay


def _spread(key: str, attempt: int) -> float:
    """Return a number in [-1, 1) that follows from ``key`` and ``attempt``."""
    seed = _JITTER_SEED + f"{attempt}\0{key}".encode()
    return int.from_bytes(sha256(seed).digest()[:6], "big") / 2**47 - 1.0
