"""Validators for attrs fields: a refusal names the field and value, and says what is allowed."""

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

# One form for every name that ends up in a file name, a URL or a key: no separator, no dot first.
NAME_CHARS_MAX = 64
DURATION_MAX = timedelta(days=3_650)
_FLOAT_MAX = float.fromhex("0x1.fffffffffffffp+1023")
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARS_MAX - 1}}}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def format_field_name(instance: object, attribute: "Attribute[Any]") -> str:
    """How an error message names a field."""
    return f"{type(instance).__name__}.{attribute.name}"


def check_fields(instance: AttrsInstance, checks: Mapping[str, Validator]) -> None:
    """Check field by field what did not pass as a whole.

    For values of which there are millions: one expression lets the good ones pass, and only what it
    does not know is looked at closely, to be refused by its field or to be right after all.
    """
    known = fields(type(instance))
    for name_of_field, check in checks.items():
        check(instance, getattr(known, name_of_field), getattr(instance, name_of_field))


def is_name(value: object) -> bool:
    """Tell whether ``value`` can be part of a path, a URL and a key as it stands."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and ".." not in value


def name(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Refuse anything but a plain name."""
    if not is_name(value):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="is not a plain name",
            remedy=f"use 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ - a letter or digit first",
        )


def is_unicode(value: object) -> bool:
    """Tell whether ``value`` is text that can be written as UTF-8; empty text is text."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def text(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Refuse anything but non-empty text."""
    if not (value and is_unicode(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be non-empty text in valid Unicode",
        )


def unicode(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Refuse anything but text; it may be empty."""
    if not is_unicode(value):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be text in valid Unicode",
        )


def sha256_hex(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept a sha256 as it is written: 64 lower-case hex digits."""
    if not (isinstance(value, str) and _SHA256.fullmatch(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="must be 64 lower-case hex digits",
        )


def parse_date(text: str) -> date | None:
    """Read a date in the one form in which dates are written: ``2024-01-31``."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return found if found.isoformat() == text else None


def parse_datetime(text: str, *, field: str) -> datetime:
    """Read a time that somebody wrote, ISO 8601 with its zone; what we keep is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # at either end of the calendar there is no other zone
        pass
    raise InvalidValueError(
        field=field, value=text, problem="must be an ISO 8601 time with its zone"
    )


def as_tuple(values: Any) -> Any:
    """Convert what can be gone through; the rest comes back for the field's validator to refuse."""
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
    """Write equal numbers alike: ``1`` as ``1.0``, ``-0.0`` as ``0.0``, beyond floats as infinity.

    What is no number comes back as it is, for the field's validator to refuse.
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
    """Refuse a time that does not know its zone."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidValueError(
            field=field,
            value=value,
            problem="must be a time with its zone",
            remedy="give a timezone-aware datetime",
        )


def check_duration(value: object, *, field: str) -> None:
    """Refuse what is no stretch of time, has no length, or is longer than anything here lasts."""
    if not (isinstance(value, timedelta) and timedelta(0) < value <= DURATION_MAX):
        raise InvalidValueError(
            field=field,
            value=value,
            problem=f"must be a duration longer than nothing and at most {DURATION_MAX.days} days",
        )


def aware(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept only times that know their zone."""
    check_aware(value, field=format_field_name(instance, attribute))


def _format_range(minimum: float, maximum: float | None) -> str:
    # Up to nine digits are written out: nobody reads 7.776e+06 as ninety days.
    return f"from {minimum:.9g} up" if maximum is None else f"from {minimum:.9g} to {maximum:.9g}"
