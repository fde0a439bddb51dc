"""One value, one sequence of bytes: the JSON that keys, fingerprints and audit hashes are made of.

Keys are sorted at every depth; numbers that are equal are written alike (``1`` and ``1.0``, ``0``
and ``-0.0``); text is UTF-8 without escapes it does not need; there is no white space. What has no
such form (NaN, bytes, sets, keys that are not text, text that is not UTF-8) is refused by its path.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

from tileferry.domain.errors import InvalidValueError

JsonValue: TypeAlias = Union[  # recursive, so not written with |
    str, int, float, bool, "Sequence[JsonValue]", "Mapping[str, JsonValue]", None
]

DEPTH_MAX = 32
# As far as floats reach; beyond, a number in an event or a payload is a mistake or an attack.
INTEGER_BITS_MAX = 1024


def canonical_json(value: JsonValue, *, field: str = "value") -> bytes:
    """Return the canonical bytes of ``value``; ``field`` is how errors name it."""
    return json.dumps(
        _plain(value, field, 0),
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    ).encode("utf-8")


def _plain(value: object, path: str, depth: int) -> object:
    """Return ``value`` in the types whose JSON form is unique."""
    if depth > DEPTH_MAX:
        raise InvalidValueError(field=path, value="…", problem=f"is nested over {DEPTH_MAX} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        return _number(value, path)
    if isinstance(value, Mapping):
        return {
            _key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise InvalidValueError(
        field=path,
        value=type(value).__name__,
        problem="has no canonical JSON form",
        remedy="turn it into text, numbers, lists or mappings first",
    )


def _text(value: str, path: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidValueError(field=path, value=value, problem="is not valid Unicode") from error
    return str(value)


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidValueError(field=path, value=key, problem="has a key that is not text")
    return _text(key, path)


def _integer(value: int, path: str) -> int:
    if value.bit_length() > INTEGER_BITS_MAX:
        raise InvalidValueError(
            field=path, value="…", problem=f"is a number of over {INTEGER_BITS_MAX} bits"
        )
    return int(value)


def _number(value: float, path: str) -> int | float:
    if not math.isfinite(value):
        raise InvalidValueError(field=path, value=value, problem="must be a finite number")
    return int(value) if value.is_integer() else value
