"""The default codec of idempotent results: JSON."""

import json
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import MisuseError
from tileferry.domain.text import quote_value

_PLAIN = (str, int, float, bool, NoneType)
_LISTS = (list, tuple, Sequence)
_OBJECTS = (dict, Mapping)
_UNIONS = (Union, UnionType)


class JsonCodec:
    """Stores JSON values: strings, finite numbers, booleans, ``None``, lists, and string-keyed
    dicts.

    All callers, including the first, get the decoded value: a tuple comes back as a list.
    """

    def check_type(self, result_type: Any) -> None:
        """Raise if JSON cannot represent a type, or the type is unknown.

        It is checked before the operation runs: a result that cannot be stored would leave an
        effect without a record. ``Any`` inside a container is taken as JSON.
        """
        if result_type is Any:
            raise MisuseError(
                what="result_type",
                problem="is unknown, so the result may not be storable as JSON",
                remedy="declare what the operation returns, as its return type or as result_type "
                "(JsonValue for any JSON value), or use a codec that can encode every value",
            )
        if not _is_encodable(result_type):
            shown = quote_value(getattr(result_type, "__qualname__", result_type))
            raise MisuseError(
                what="result_type",
                problem=f"{shown} cannot be stored as JSON",
                remedy="return plain JSON values, or pass a codec for this type",
            )

    def encode(self, result: Any) -> bytes:
        """Return a result as JSON bytes; its numbers are kept as they are."""
        canonical_json(
            result, field="result"
        )  # raises, with its path, for a value that is not JSON
        return json.dumps(
            result, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=dict
        ).encode()

    def decode(self, content: bytes) -> Any:
        return json.loads(content)


def _is_encodable(kind: Any) -> bool:
    if kind in (Any, JsonValue, None) or kind in _PLAIN or kind in _LISTS or kind in _OBJECTS:
        return True
    if is_typeddict(kind):
        return all(map(_is_encodable, get_type_hints(kind).values()))
    return _is_encodable_generic(get_origin(kind), get_args(kind))


def _is_encodable_generic(origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin in _UNIONS:
        return all(map(_is_encodable, arguments))
    if origin in _LISTS:
        return all(_is_encodable(item) for item in arguments if item is not Ellipsis)
    if origin in _OBJECTS:
        return arguments[0] in (str, Any) and _is_encodable(arguments[1])
    if origin is Literal:
        return all(_is_encodable(type(value)) for value in arguments)
    return origin is Annotated and _is_encodable(arguments[0])
