"""Parses JSON from untrusted sources. Errors name the path of the invalid value.

Python's parser accepts NaN, silently drops duplicate keys, and returns text that cannot be encoded
again. Here each of these is an error. It also builds values of up to 35 times the size of the
JSON; here their number is limited, before any of them is built.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from attrs import frozen

from tileferry.domain.canonical import DEPTH_MAX, JsonValue
from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.validation import parse_date, parse_datetime

VALUES_MAX = 600_000
"""Limit for a document: its values need at most 90 MB. 4 MiB of GeoJSON have fewer values."""
_INTEGER_DIGITS_MAX = 20
_PLAIN = frozenset({int, float, bool, type(None)})


@frozen
class _Invalid:
    """A placeholder for an invalid value, until its path is known."""

    problem: str


def parse_json(content: bytes, *, field: str, bytes_max: int) -> JsonValue:
    """Parse ``content``. An ``InvalidValueError`` names the path below ``field``."""
    if len(content) > bytes_max:
        _refuse(field, f"{len(content)} bytes", f"is longer than {bytes_max} bytes")
    if count_values_max(content) > VALUES_MAX:
        _refuse(field, f"{len(content)} bytes", f"has more than {VALUES_MAX} values")
    try:
        value = json.loads(
            content.decode("utf-8"),
            parse_constant=_parse_constant,
            parse_int=_parse_integer,
            parse_float=_parse_number,
            object_pairs_hook=_build_object,
        )
    except UnicodeDecodeError:
        _refuse(field, f"{len(content)} bytes", "is not UTF-8")
    except RecursionError:
        _refuse(field, f"{len(content)} bytes", f"is nested more than {DEPTH_MAX} levels deep")
    except ValueError as error:
        _refuse(field, f"{len(content)} bytes", f"is not JSON: {error}")
    _check(value, field, 0)
    return value  # type: ignore[no-any-return]  # only JSON values are left


def count_values_max(content: bytes) -> int:
    """Return an upper bound for the number of keys and values: punctuation in text counts too."""
    return 1 + sum(map(content.count, (b",", b":", b"[", b"{")))


def _check(value: Any, path: str, depth: int) -> None:
    """Check a value recursively; raise for the first invalid part."""
    if depth > DEPTH_MAX:
        _refuse(path, "…", f"is nested more than {DEPTH_MAX} levels deep")
    if isinstance(value, _Invalid):
        _refuse(path, "…", value.problem)
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_text(key, path)
            # A listing has millions of plain values. Building a path for each would be slow.
            if type(item) not in _PLAIN or depth == DEPTH_MAX:
                _check(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)


def _check_text(value: str, path: str) -> None:
    if "\0" in value:
        _refuse(path, value, "holds a NUL character")
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(path, value, "is not valid Unicode")


def _parse_constant(name: str) -> _Invalid:
    return _Invalid(f"is {name}, which JSON does not have")


def _parse_integer(text: str) -> int | _Invalid:
    if len(text) > _INTEGER_DIGITS_MAX:
        return _Invalid(f"is a whole number of {len(text)} digits")
    return int(text)


def _parse_number(text: str) -> float | _Invalid:
    value = float(text)
    return _Invalid("is beyond what a number can be") if value in _INFINITIES else value


_INFINITIES = (float("inf"), float("-inf"))


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Invalid:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        return _Invalid(f"has the key {twice!r} twice")
    return found


def _refuse(field: str, value: object, problem: str) -> NoReturn:
    raise InvalidValueError(field=field, value=value, problem=problem)


Kind = TypeVar("Kind", str, int, bool)
Member = TypeVar("Member", bound=StrEnum)
_NAMES = {str: "text", int: "a whole number", bool: "true or false"}


@frozen
class JsonObject:
    """The fields of a JSON object, with typed access. Errors name the path."""

    path: str
    fields: Mapping[str, JsonValue]

    @classmethod
    def from_value(cls, value: JsonValue, path: str) -> "JsonObject":
        """Return the object; raise if ``value`` is not one."""
        if not isinstance(value, Mapping):
            raise InvalidValueError(
                field=path, value=type(value).__name__, problem="must be an object"
            )
        return cls(path, value)

    def check_version(self, version: int, *, remedy: Remedy | str) -> None:
        """Raise unless the object has this version. Call it before reading other fields."""
        found = self.get("version", int)
        if found != version:
            raise InvalidValueError(
                field=f"{self.path}.version",
                value=found,
                problem=f"is not known: this release reads version {version}",
                remedy=remedy,
            )

    def check_names(self, names: Collection[str], *, optional: Collection[str] = ()) -> None:
        """Raise for missing and for unknown fields, which may be typing errors."""
        for name in names:
            if name not in self.fields:
                raise self.build_error(name, "is missing")
        for name in self.fields:
            if name not in names and name not in optional:
                raise self.build_error(name, "is not known")

    def get(self, name: str, kind: type[Kind]) -> Kind:
        """Return a field of type ``kind``. ``True`` is not accepted as a number."""
        value = self.fields.get(name)
        if type(value) is not kind:
            raise self.build_error(name, f"must be {_NAMES[kind]}")
        return value

    def get_list(self, name: str) -> Sequence[JsonValue]:
        value = self.fields.get(name)
        if not isinstance(value, list | tuple):
            raise self.build_error(name, "must be a list")
        return value

    def get_number(self, name: str) -> float:
        """Return a numeric field, integer or not."""
        value = self.fields.get(name)
        if type(value) not in {int, float}:
            raise self.build_error(name, "must be a number")
        return float(value)  # type: ignore[arg-type]  # it is an int or a float

    def get_enum(self, name: str, kind: type[Member]) -> Member:
        value = self.fields.get(name)
        if value not in list(kind):
            raise self.build_error(name, f"must be one of {', '.join(kind)}")
        return kind(value)

    def get_datetime(self, name: str) -> datetime:
        """Return a field that is a time with a time zone."""
        return parse_datetime(self.get(name, str), field=f"{self.path}.{name}")

    def get_date(self, name: str) -> date:
        """Return a field that is an ISO date."""
        found = parse_date(self.get(name, str))
        if found is None:
            raise self.build_error(name, "must be a date, such as 2024-01-31")
        return found

    def build_error(self, name: str, problem: str) -> InvalidValueError:
        return InvalidValueError(
            field=f"{self.path}.{name}", value=self.fields.get(name), problem=problem
        )

    @contextmanager
    def locate_errors(self, name: str | None = None) -> Iterator[None]:
        """Rewrite errors of a value's own fields to the path of the JSON field."""
        path = self.path if name is None else f"{self.path}.{name}"
        try:
            yield
        except InvalidValueError as error:
            if error.field.startswith(self.path):
                raise
            _, _, part = error.field.partition(".")
            raise InvalidValueError(
                field=f"{path}.{part}" if part else path,
                value=error.value,
                problem=error.problem,
                remedy=error.remedy,
            ) from error
