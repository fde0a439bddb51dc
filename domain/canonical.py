"""One value, one sequence of bytes: the JSON that keys, fingerprints and audit hashes are made of.

Keys are sorted at every depth; numbers that are equal are written alike (``1`` and ``1.0``, ``0``
and ``-0.0``); text is UTF-8 without escapes it does not need; there is no white space. What has no
such form (NaN, bytes, sets, keys that are not text, text that is not UTF-8) is refused by its path.
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
# As far as floats reach; beyond, a number in an event or a payload is a mistake or an attack.
INTEGER_BITS_MAX = 1024
NODES_MAX = 1_000_000
_Path = tuple[str, ...]


def canonical_json(value: JsonValue, *, field: str = "value") -> bytes:
    """Return the canonical bytes of ``value``; ``field`` is how errors name it."""
    return json.dumps(
        _Normalizer(field).normalize(value, ()),
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    ).encode("utf-8")


@define
class _Normalizer:
    """Brings a value into the types whose JSON form is unique."""

    field: str
    nodes: int = 0

    def normalize(self, value: object, path: _Path) -> object:
        """Return the plain form of ``value``, which stands at ``path``."""
        self.nodes += 1
        if len(path) > DEPTH_MAX:
            raise self._build_error(path, "…", f"is nested over {DEPTH_MAX} deep")
        if self.nodes > NODES_MAX:
            raise self._build_error(path, "…", f"is one value too many: there may be {NODES_MAX}")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._normalize_text(value, path)
        if isinstance(value, int):
            return self._normalize_integer(value, path)
        if isinstance(value, float):
            return self._normalize_number(value, path)
        if isinstance(value, Mapping):
            return {
                self._normalize_key(key, path): self.normalize(item, (*path, f".{key}"))
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.normalize(item, (*path, f"[{index}]")) for index, item in enumerate(value)]
        raise self._build_error(path, type(value).__name__, "has no canonical JSON form")

    def _normalize_text(self, value: str, path: _Path) -> str:
        if not is_unicode(value):
            raise self._build_error(path, value, "is not valid Unicode")
        return str.__str__(value)  # of an enum's member the text, not its name

    def _normalize_key(self, key: object, path: _Path) -> str:
        if not isinstance(key, str):
            raise self._build_error(path, key, "has a key that is not text")
        return self._normalize_text(key, path)

    def _normalize_integer(self, value: int, path: _Path) -> int:
        if value.bit_length() > INTEGER_BITS_MAX:
            raise self._build_error(path, "…", f"is a number of over {INTEGER_BITS_MAX} bits")
        return int(value)

    def _normalize_number(self, value: float, path: _Path) -> int | float:
        if not math.isfinite(value):
            raise self._build_error(path, value, "must be a finite number")
        return int(value) if value.is_integer() else value

    def _build_error(self, path: _Path, value: object, problem: str) -> InvalidValueError:
        return InvalidValueError(field=self.field + "".join(path), value=value, problem=problem)
