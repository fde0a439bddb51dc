"""Reads the filters and the paging of lists from a query."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlencode

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import is_name, is_unicode

_TEXT_CHARS_MAX = 200
_BETWEEN = "~"
Choice = TypeVar("Choice", bound=StrEnum)


def read_choice(kind: type[Choice], query: Mapping[str, str], name: str) -> Sequence[Choice]:
    """Return the chosen value as a list; an empty list if the field is empty."""
    value = query.get(name, "")
    if not value:
        return ()
    if value not in {one.value for one in kind}:
        known = ", ".join(one.value for one in kind)
        raise InvalidValueError(field=name, value=value, problem=f"must be one of {known}")
    return (kind(value),)


def read_name(query: Mapping[str, str], name: str) -> str | None:
    """Return a name, such as that of a source; ``None`` if the field is empty."""
    value = query.get(name, "").strip()
    if value and not is_name(value):
        raise InvalidValueError(field=name, value=value, problem="is not a plain name")
    return value or None


def read_text(query: Mapping[str, str], name: str = "text") -> str | None:
    """Return a text to search for; ``None`` if the field is empty."""
    value = query.get(name, "").strip()
    is_valid = is_unicode(value) and value.isprintable() and len(value) <= _TEXT_CHARS_MAX
    if value and not is_valid:
        problem = f"must be at most {_TEXT_CHARS_MAX} printable characters"
        raise InvalidValueError(field=name, value=value, problem=problem)
    return value or None


def format_position(moment: datetime, name: str) -> str:
    """Return the position of an item in a list sorted by time, for ``read_position``."""
    return f"{moment.isoformat()}{_BETWEEN}{name}"


def read_position(query: Mapping[str, str], name: str = "after") -> tuple[datetime, str] | None:
    """Return the position after which a list continues; ``None`` for its beginning."""
    value = query.get(name, "")
    if not value:
        return None
    moment, _, item = value.partition(_BETWEEN)
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None or not is_name(item):
        raise InvalidValueError(field=name, value=value, problem="is not a position in this list")
    return parsed, item


def encode_filters(query: Mapping[str, str], names: Sequence[str], **more: str) -> str:
    """Return the filters that are set, as the query of an address."""
    kept = {name: query[name] for name in names if query.get(name)}
    return urlencode({**kept, **more})
