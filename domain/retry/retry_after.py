"""The ``Retry-After`` header: seconds or a date, from a server that may send anything."""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tileferry.domain.checks import check_moment
from tileferry.domain.errors import InvalidValueError

_HEADER_CHARS_MAX = 64
_SECONDS = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)


def parse_retry_after(header: str | None, *, now: datetime, cap_s: float) -> float | None:
    """Return the wait in seconds within [0, ``cap_s``], or ``None`` when the header says none.

    Negative seconds and dates in the past mean "now"; what is neither form is no hint at all.
    """
    check_moment(now)
    if not 0 <= cap_s < math.inf:  # false for NaN
        raise InvalidValueError(
            field="cap_s", value=cap_s, problem="must be a finite number from 0 up"
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
