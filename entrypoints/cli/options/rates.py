"""Rates as operators write them."""

import re

from tileferry.domain.audit import AlertThresholds
from tileferry.domain.errors import InvalidValueError

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) *([kMG]?)B?(?:/s)?")
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def rate_of(text: str) -> float:
    """Return the bytes a second that ``--rate`` gives, such as ``2.5M``."""
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if rate <= 0:
        raise InvalidValueError(
            field="--rate",
            value=text,
            problem="is no rate in bytes a second",
            remedy="write it as 500k, 2M or 2.5M",
        )
    return rate


def alert_rate_of(text: str) -> AlertThresholds:
    """Return the limit for all categories that ``--alert-rate`` gives, such as ``10/min``."""
    try:
        rate = float(text.strip().lower().removesuffix("/min"))
        return AlertThresholds(retries_per_minute=rate)
    except (ValueError, InvalidValueError):
        raise InvalidValueError(
            field="--alert-rate",
            value=text,
            problem="is not a rate",
            remedy="give retries per minute, such as 10/min",
        ) from None
