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


@frozen
class _Array:
    content: bytes


class ByteaArray(_Array):
    """A parameter of type ``bytea[]``."""


class TextArray(_Array):
    """A parameter of type ``text[]``."""


class TimestampArray(_Array):
    """A parameter of type ``timestamptz[]``."""


def bytea_array(values: Sequence[bytes]) -> ByteaArray:
    return ByteaArray(_pack_array("bytea", values))


def text_array(values: Sequence[str | None]) -> TextArray:
    """Return a ``text[]`` parameter; ``None`` becomes NULL."""
    encoded = [None if value is None else value.encode() for value in values]
    return TextArray(_pack_array("text", encoded))


def timestamp_array(values: Sequence[datetime]) -> TimestampArray:
    since = ((value - _ZERO_HOUR) // _MICROSECOND for value in values)
    return TimestampArray(
        _pack_array("timestamptz", [struct.pack("!q", micros) for micros in since])
    )


def _pack_array(kind: str, members: Sequence[bytes | None]) -> bytes:
    """Encode a one-dimensional array with lower bound 1: a header, then length-prefixed members."""
    header = struct.pack("!iiIii", 1, 1, types[kind].oid, len(members), 1)
    return b"".join((header, *_iter_length_prefixed(members)))


def _iter_length_prefixed(members: Iterable[bytes | None]) -> Iterable[bytes]:
    for member in members:
        if member is None:
            yield _ABSENT
        else:
            yield len(member).to_bytes(4, "big")
            yield member


class _ByteaArrayDumper(Dumper):
    format = Format.BINARY
    oid = types["bytea"].array_oid

    def dump(self, obj: _Array) -> bytes:
        return obj.content


class _TextArrayDumper(_ByteaArrayDumper):
    oid = types["text"].array_oid


class _TimestampArrayDumper(_ByteaArrayDumper):
    oid = types["timestamptz"].array_oid


def register_arrays(adapters: AdaptersMap) -> None:
    """Let a connection send our arrays."""
    adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
    adapters.register_dumper(TextArray, _TextArrayDumper)
    adapters.register_dumper(TimestampArray, _TimestampArrayDumper)
