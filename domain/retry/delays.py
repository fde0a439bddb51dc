"""Delays between attempts: backoff, jitter and the ``Retry-After`` header."""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.policy import BackoffKind, RetryPolicy
from tileferry.domain.validation import check_aware

_JITTER_SEED = b"tileferry-jitter-v1\0"


def compute_nominal_delay(policy: RetryPolicy, attempt: int) -> float:
    """Return the seconds to wait after attempt ``attempt`` (from 1), capped, before jitter."""
    if policy.base_delay == 0:  # zero stays zero, even if the growth overflows
        return 0.0
    try:
        if policy.backoff is BackoffKind.POWER:
            grown = policy.base_delay**attempt
        else:
            grown = policy.base_delay * policy.backoff_multiplier ** (attempt - 1)
    except OverflowError:  # beyond any cap
        return policy.max_delay
    return min(grown, policy.max_delay)


def compute_jittered_delay(policy: RetryPolicy, attempt: int, key: str) -> float:
    """Return the seconds to wait after attempt ``attempt``, with the policy's jitter.

    The jitter depends only on ``key`` and ``attempt``, so a decision can be recomputed exactly, and
    callers with different keys do not retry at the same time. A delay above ``max_delay`` is
    mirrored below it, so that callers at the cap are spread too.
    """
    nominal = compute_nominal_delay(policy, attempt)
    if not policy.jitter_enabled:
        return nominal
    delay = nominal + nominal * policy.jitter_factor * _compute_jitter(key, attempt)
    return delay if delay <= policy.max_delay else 2 * policy.max_delay - delay


def _compute_jitter(key: str, attempt: int) -> float:
    """Return a number in [-1, 1) derived from ``key`` and ``attempt``."""
    seed = _JITTER_SEED + f"{attempt}\0{key}".encode()
    return int.from_bytes(sha256(seed).digest()[:6], "big") / 2**47 - 1.0


_HEADER_CHARS_MAX = 64
_SECONDS = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def parse_retry_after(header: str | None, *, now: datetime, cap_s: float) -> float | None:
    """Return the wait in seconds within [0, ``cap_s``], or ``None`` if the header has none.

    Negative seconds and past dates mean "now". A header in neither form is ignored.
    """
    check_aware(now)
    if not 0 <= cap_s < math.inf:  # false for NaN
        raise InvalidValueError(
            field="cap_s", value=cap_s, problem="must be a finite number of at least 0"
        )
    text = header.strip() if isinstance(header, str) else ""
    if not text or len(text) > _HEADER_CHARS_MAX:
        return None
    wait_s = float(text) if _SECONDS.fullmatch(text) else _seconds_until(text, now)
    return None if wait_s is None else min(max(wait_s, 0.0), cap_s)


def _seconds_until(text: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:  # "-0000": the sender's zone is unknown; HTTP dates are in GMT
        when = when.replace(tzinfo=UTC)
    return (when - now).total_seconds()
