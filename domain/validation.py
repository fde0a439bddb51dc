"""Validators for attrs fields: errors name the field and value, and what is allowed."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from attrs import AttrsInstance, fields

from tileferry.domain.errors import InvalidValueError

if TYPE_CHECKING:
    from attrs import Attribute

Validator = Callable[[Any, "Attribute[Any]", Any], None]

# Names become parts of file names, URLs and keys: no separators, no leading dot.
NAME_CHARS_MAX = 64
DURATION_MAX = timedelta(days=3_650)
_FLOAT_MAX = float.fromhex("0x1.fffffffffffffp+1023")
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARS_MAX - 1}}}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def format_field_name(instance: object, attribute: "Attribute[Any]") -> str:
    """Return the name of a field for error messages."""
    return f"{type(instance).__name__}.{attribute.name}"


def check_fields(instance: AttrsInstance, checks: Mapping[str, Validator]) -> None:
    """Check field by field what a faster check of the whole value did not accept.

    For classes with millions of instances: one expression accepts the usual values, and only the
    others are checked here.
    """
    known = fields(type(instance))
    for name_of_field, check in checks.items():
        check(instance, getattr(known, name_of_field), getattr(instance, name_of_field))


def is_name(value: object) -> bool:
    """Return whether ``value`` can be part of a path, a URL and a key without escaping."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and ".." not in value


def name(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept plain names only."""
    if not is_name(value):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="is not a plain name",
            remedy=f"use 1 to {NAME_CHARS_MAX} characters from A-Z a-z 0-9 . _ - and start with a "
            "letter or digit",
        )


def is_unicode(value: object) -> bool:
    """Return whether ``value`` is text, maybe empty, that can be encoded as UTF-8."""
    try:
        return isinstance(value, str) and (value.isascii() or value.encode() is not None)
    except UnicodeEncodeError:
        return False


def text(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept non-empty text only."""
    if not (value and is_unicode(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be non-empty text in valid Unicode",
        )


def unicode(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept text only; it may be empty."""
    if not is_unicode(value):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be text in valid Unicode",
        )


def sha256_hex(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept a sha256: 64 lower-case hex digits."""
    if not (isinstance(value, str) and _SHA256.fullmatch(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be 64 lower-case hex digits",
        )


def parse_date(text: str) -> date | None:
    """Parse a date in the form ``2024-01-31``; return ``None`` for anything else."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return found if found.isoformat() == text else None


def parse_datetime(text: str, *, field: str) -> datetime:
    """Parse an ISO 8601 time with a time zone, and return it in UTC."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (
        ValueError,
        OverflowError,
    ):  # conversion to UTC can overflow at either end of the calendar
        pass
    raise InvalidValueError(
        field=field, value=text, problem="must be an ISO 8601 time with a time zone"
    )


def as_tuple(values: Any) -> Any:
    """Convert iterables; return anything else unchanged, for the validator to reject."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def each(check: Validator) -> Validator:
    """Accept tuples whose members pass ``check``."""

    def check_all(instance: object, attribute: "Attribute[Any]", values: object) -> None:
        if not isinstance(values, tuple):
            raise InvalidValueError(
                field=format_field_name(instance, attribute), value=values, problem="must be a list"
            )
        for value in values:
            check(instance, attribute, value)

    return check_all


def integer(minimum: int, maximum: int | None = None) -> Validator:
    """Accept whole numbers in a closed range; ``True`` is not a number."""

    def check(instance: object, attribute: "Attribute[Any]", value: object) -> None:
        good = (
            isinstance(value, int)
            and not isinstance(value, bool)
            and minimum <= value
            and (maximum is None or value <= maximum)
        )
        if not good:
            raise InvalidValueError(
                field=format_field_name(instance, attribute),
                value=value,
                problem=f"must be a whole number {_format_range(minimum, maximum)}",
            )

    return check


def number(minimum: float, maximum: float | None = None) -> Validator:
    """Accept finite numbers in a closed range."""

    def check(instance: object, attribute: "Attribute[Any]", value: object) -> None:
        good = (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and minimum <= value <= (_FLOAT_MAX if maximum is None else maximum)  # never for NaN
        )
        if not good:
            raise InvalidValueError(
                field=format_field_name(instance, attribute),
                value=value,
                problem=f"must be a finite number {_format_range(minimum, maximum)}",
            )

    return check


def instance(*kinds: type) -> Validator:
    """Accept instances of one of ``kinds`` only."""
    names = " or ".join(kind.__name__ for kind in kinds)

    def check(instance: object, attribute: "Attribute[Any]", value: object) -> None:
        if not isinstance(value, kinds):
            raise InvalidValueError(
                field=format_field_name(instance, attribute),
                value=value,
                problem=f"must be a {names}",
            )

    return check


def as_float(value: Any) -> Any:
    """Normalise equal numbers: ``1`` to ``1.0``, ``-0.0`` to ``0.0``, too large to infinity.

    Anything but a number is returned unchanged, for the validator to reject.
    """
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:  # JSON has no limit on digits
            return math.inf if value > 0 else -math.inf
    return value + 0.0 if type(value) is float else value


def positive(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept finite floats above zero."""
    if not (type(value) is float and 0.0 < value < math.inf):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be a finite number above 0",
        )


def check_aware(value: object, *, field: str = "now") -> None:
    """Reject a time without a time zone."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidValueError(
            field=field,
            value=value,
            problem="must be a time with a time zone",
            remedy="pass a timezone-aware datetime",
        )


def check_duration(value: object, *, field: str) -> None:
    """Accept positive durations up to ``DURATION_MAX``."""
    if not (isinstance(value, timedelta) and timedelta(0) < value <= DURATION_MAX):
        raise InvalidValueError(
            field=field,
            value=value,
            problem=f"must be a positive duration of at most {DURATION_MAX.days} days",
        )


def aware(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept only times with a time zone."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        check_aware(value, field=format_field_name(instance, attribute))


def _format_range(minimum: float, maximum: float | None) -> str:
    # Write out up to nine digits: 7.776e+06 s is hard to read as ninety days.
    return (
        f"of at least {minimum:.9g}" if maximum is None else f"from {minimum:.9g} to {maximum:.9g}"
    )
