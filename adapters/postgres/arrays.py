"""Arrays in the form in which Postgres receives them.

The driver looks at each member by itself, which for a thousand rows costs as much as hashing them.
"""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import psycopg
from attrs import frozen
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

_ABSENT = struct.pack("!i", -1)
# Postgres counts microseconds from here.
_ZERO_HOUR = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@frozen
class _Array:
    content: bytes


class ByteaArray(_Array):
    """For a parameter of the type ``bytea[]``."""


class TextArray(_Array):
    """For a parameter of the type ``text[]``."""


class MomentArray(_Array):
    """For a parameter of the type ``timestamptz[]``."""


def byteas(values: Sequence[bytes]) -> ByteaArray:
    """Return an array of bytes."""
    return ByteaArray(_packed("bytea", values))


def texts(values: Sequence[str | None]) -> TextArray:
    """Return an array of texts, some of which may be absent."""
    encoded = [None if value is None else value.encode() for value in values]
    return TextArray(_packed("text", encoded))


def moments(values: Sequence[datetime]) -> MomentArray:
    """Return an array of times."""
    since = ((value - _ZERO_HOUR) // _MICROSECOND for value in values)
    return MomentArray(_packed("timestamptz", [struct.pack("!q", micros) for micros in since]))


def _packed(kind: str, members: Sequence[bytes | None]) -> bytes:
    """Write one dimension that begins at 1: the header, then each member after its length."""
    header = struct.pack("!iiIii", 1, 1, types[kind].oid, len(members), 1)
    return b"".join((header, *_lengths_and_members(members)))


def _lengths_and_members(members: Iterable[bytes | None]) -> Iterable[bytes]:
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


class _MomentArrayDumper(_ByteaArrayDumper):
    oid = types["timestamptz"].array_oid


psycopg.adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
psycopg.adapters.register_dumper(TextArray, _TextArrayDumper)
psycopg.adapters.register_dumper(MomentArray, _MomentArrayDumper)
