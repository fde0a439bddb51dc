"""Encodings for Postgres parameters: text that may contain NUL, and binary arrays."""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from attrs import frozen
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.postgres import types
from psycopg.pq import Format

_ZERO, _BACKSLASH = "\x00", "\\"


def escape_text(text: str) -> str:
    r"""Escape NUL, which Postgres text cannot hold, as ``\0``, and a backslash as two."""
    return text.replace(_BACKSLASH, _BACKSLASH * 2).replace(_ZERO, r"\0")


def unescape_text(text: str) -> str:
    """Undo ``escape_text``."""
    if _BACKSLASH not in text:
        return text
    parts = [part.replace(r"\0", _ZERO) for part in text.split(_BACKSLASH * 2)]
    return _BACKSLASH.join(parts)


_ABSENT = struct.pack("!i", -1)
# Binary timestamps count microseconds from this epoch.
_ZERO_HOUR = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIXED = {"int4": ("i", 4), "int8": ("q", 8), "float8": ("d", 8), "timestamptz": ("q", 8)}
"""How ``struct`` packs a member of a type, and its size."""


@frozen
class BinaryArray:
    """An array as a parameter of a statement. The driver would encode each member by itself."""

    content: bytes


# The driver finds the type of a parameter by its class.
_ARRAYS: dict[str, type[BinaryArray]] = {
    kind: type(f"{kind}_array", (BinaryArray,), {}) for kind in ("bytea", "text", *_FIXED)
}


def encode_bytea_array(values: Sequence[bytes]) -> BinaryArray:
    return _join_array("bytea", values)


def encode_text_array(values: Sequence[str | None]) -> BinaryArray:
    """Return a ``text[]`` parameter; ``None`` becomes NULL."""
    return _join_array("text", [None if value is None else value.encode() for value in values])


def encode_timestamp_array(values: Sequence[datetime]) -> BinaryArray:
    micros = {value: (value - _ZERO_HOUR) // _MICROSECOND for value in set(values)}
    return encode_number_array("timestamptz", [micros[value] for value in values])


def encode_number_array(kind: str, values: Sequence[float]) -> BinaryArray:
    """Return a parameter of type ``int4[]``, ``int8[]`` or ``float8[]``."""
    letter, size = _FIXED[kind]
    cells: list[float] = [size] * (2 * len(values))
    cells[1::2] = values
    packed = struct.pack("!" + f"i{letter}" * len(values), *cells)
    return _ARRAYS[kind](_pack_header(kind, len(values)) + packed)


def _join_array(kind: str, members: Sequence[bytes | None]) -> BinaryArray:
    parts = _iter_length_prefixed(members)
    return _ARRAYS[kind](b"".join((_pack_header(kind, len(members)), *parts)))


def _pack_header(kind: str, count: int) -> bytes:
    """Return the beginning of a one-dimensional array with lower bound 1."""
    return struct.pack("!iiIii", 1, 1, types[kind].oid, count, 1)


def _iter_length_prefixed(members: Iterable[bytes | None]) -> Iterable[bytes]:
    for member in members:
        if member is None:
            yield _ABSENT
        else:
            yield len(member).to_bytes(4, "big")
            yield member


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: BinaryArray) -> bytes:
        return obj.content


def register_arrays(adapters: AdaptersMap) -> None:
    """Let a connection send our arrays."""
    for kind, array in _ARRAYS.items():
        members = {"oid": types[kind].array_oid}
        adapters.register_dumper(array, type(f"{kind}_dumper", (_ArrayDumper,), members))
