"""Canonical JSON: one byte sequence per value, for keys, fingerprints and audit hashes.

Keys are sorted at every depth. Equal numbers have the same form (``1`` and ``1.0``, ``0`` and
``-0.0``). Text is UTF-8 without unnecessary escapes. There is no white space. Values without such a
form (NaN, bytes, sets, keys that are not text, invalid Unicode) are rejected with their path.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

from attrs import define

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import is_unicode

JsonValue: TypeAlias = Union[  # recursive, so not written with |
    str, int, float, bool, "Sequence[JsonValue]", "Mapping[str, JsonValue]", None
]

DEPTH_MAX = 32
# The range of floats. A larger number in an event or a payload is a mistake or an attack.
INTEGER_BITS_MAX = 1024
NODES_MAX = 1_000_000
_Path: TypeAlias = Union["tuple[_Path, str | int]", None]
"""The path of the parent, and the key or index there: it is written out for errors only."""


def canonical_json(value: JsonValue, *, field: str = "value") -> bytes:
    """Return the canonical bytes of ``value``. Errors use ``field`` as its name."""
    return json.dumps(
        _Normalizer(field).normalize(value, None, 0),
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    ).encode("utf-8")


@define
class _Normalizer:
    """Converts a value to types with a unique JSON form."""

    field: str
    nodes: int = 0

    def normalize(self, value: object, path: _Path, depth: int) -> object:
        """Return the normalized form of ``value``, which is at ``path``."""
        self.nodes += 1
        if depth > DEPTH_MAX:
            raise self._build_error(path, "…", f"is nested more than {DEPTH_MAX} levels deep")
        if self.nodes > NODES_MAX:
            raise self._build_error(path, "…", f"exceeds the limit of {NODES_MAX} values")
        if value is None or isinstance(value, bool) or _is_ascii(value):
            return value
        if isinstance(value, str):
            return self._normalize_text(value, path)
        if isinstance(value, int):
            return self._normalize_integer(value, path)
        if isinstance(value, float):
            return self._normalize_number(value, path)
        if isinstance(value, Mapping):
            return {
                key if _is_ascii(key) else self._normalize_key(key, path): self.normalize(
                    item, (path, key), depth + 1
                )
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [
                self.normalize(item, (path, index), depth + 1) for index, item in enumerate(value)
            ]
        raise self._build_error(path, type(value).__name__, "has no canonical JSON form")

    def _normalize_text(self, value: str, path: _Path) -> str:
        if not is_unicode(value):
            raise self._build_error(path, value, "is not valid Unicode")
        return str.__str__(value)  # for an enum member, its value rather than its name

    def _normalize_key(self, key: object, path: _Path) -> str:
        if not isinstance(key, str):
            raise self._build_error(path, key, "has a key that is not text")
        return self._normalize_text(key, path)

    def _normalize_integer(self, value: int, path: _Path) -> int:
        if value.bit_length() > INTEGER_BITS_MAX:
            raise self._build_error(path, "…", f"is a number of more than {INTEGER_BITS_MAX} bits")
        return int(value)

    def _normalize_number(self, value: float, path: _Path) -> int | float:
        if not math.isfinite(value):
            raise self._build_error(path, value, "must be a finite number")
        return int(value) if value.is_integer() else value

    def _build_error(self, path: _Path, value: object, problem: str) -> InvalidValueError:
        names: list[str] = []
        while path is not None:
            path, name = path
            names.append(f"[{name}]" if isinstance(name, int) else f".{name}")
        where = self.field + "".join(reversed(names))
        return InvalidValueError(field=where, value=value, problem=problem)


def _is_ascii(value: object) -> bool:
    """Return whether ``value`` is plain ASCII text, which most values and keys are."""
    return type(value) is str and value.isascii()
