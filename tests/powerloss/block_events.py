"""The log of a disk: its writes and flushes, in order."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from attrs import frozen

HEADER = struct.Struct("<BdQI")
"""Kind, time in seconds since 1970, offset and length; a write is followed by its bytes."""


class EventKind(IntEnum):
    """What the file system asked of the disk."""

    WRITE = 1
    FLUSH = 2
    """Everything that was written before is durable now."""


@frozen(kw_only=True)
class BlockEvent:
    """One entry of the log. ``position`` is where its bytes are in the log file."""

    kind: EventKind
    at_s: float
    offset: int
    length: int
    position: int


def iter_events(log: Path) -> Iterator[BlockEvent]:
    """Yield the complete entries of a log."""
    size = log.stat().st_size
    with log.open("rb") as file:
        while len(header := file.read(HEADER.size)) == HEADER.size:
            kind, at_s, offset, length = HEADER.unpack(header)
            position = file.tell()
            if position + length > size:
                return
            yield BlockEvent(
                kind=EventKind(kind), at_s=at_s, offset=offset, length=length, position=position
            )
            file.seek(position + length)
