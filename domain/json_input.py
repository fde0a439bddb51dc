"""JSON from somebody else: read whole or refused by the field that is wrong.

Python's own reader takes what JSON does not have (NaN), drops one of two equal keys, and passes on
text that cannot be written again. Here each of these is an error, and it names its place.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from attrs import frozen

from tileferry.domain.canonical import DEPTH_MAX, JsonValue
from tileferry.domain.errors import InvalidValueError

_INTEGER_DIGITS_MAX = 20
_PLAIN = frozenset({int, float, bool, type(None)})


@frozen
class _Wrong:
    """Stands where something was that is no JSON, until it is known where that is."""

    problem: str


def parse_json(content: bytes, *, field: str, bytes_max: int) -> JsonValue:
    """Return the value of ``content``; an ``InvalidValueError`` names the place below ``field``."""
    if len(content) > bytes_max:
        _refuse(field, f"{len(content)} bytes", f"is longer than {bytes_max} bytes")
    try:
        value = json.loads(
            content.decode("utf-8"),
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_number,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError:
        _refuse(field, f"{len(content)} bytes", "is not UTF-8")
    except RecursionError:
        _refuse(field, f"{len(content)} bytes", f"is nested over {DEPTH_MAX} deep")
    except ValueError as error:
        _refuse(field, f"{len(content)} bytes", f"is not JSON: {error}")
    _check(value, field, 0)
    return value  # type: ignore[no-any-return]  # all that is left is JSON


def _check(value: Any, path: str, depth: int) -> None:
    """Go through a value and refuse the first thing that is wrong, by its path."""
    if depth > DEPTH_MAX:
        _refuse(path, "…", f"is nested over {DEPTH_MAX} deep")
    if isinstance(value, _Wrong):
        _refuse(path, "…", value.problem)
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_text(key, path)
            # A listing has millions of plain numbers: no path is written for those.
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


def _constant(name: str) -> _Wrong:
    return _Wrong(f"is {name}, which JSON does not have")


def _integer(text: str) -> int | _Wrong:
    if len(text) > _INTEGER_DIGITS_MAX:
        return _Wrong(f"is a whole number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float | _Wrong:
    value = float(text)
    return _Wrong("is beyond what a number can be") if value in _INFINITIES else value


_INFINITIES = (float("inf"), float("-inf"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Wrong:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        return _Wrong(f"has the key {twice!r} twice")
    return found


def _refuse(field: str, value: object, problem: str) -> NoReturn:
    raise InvalidValueError(field=field, value=value, problem=problem)
