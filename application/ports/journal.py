"""The journal of a download: its durable tiles, so that a re-run does not fetch them again."""

import re
from collections.abc import Sequence
from typing import Protocol

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId, TileSet
from tileferry.domain.validation import is_name

_NAME = re.compile(r"([^/\0]+)__[0-9a-f]{16}\.json", re.ASCII)


class TileLog(Protocol):
    """Records durable tiles, a group at a time."""

    def append(self, tiles: Sequence[TileId]) -> None:
        """Record tiles; the records are durable after the next ``flush``."""
        ...

    def flush(self) -> None:
        """Return when all appended records are durable."""
        ...


class Journal(TileLog, Protocol):
    """The progress of one download. A tile is appended once its blob and its row are durable.

    It has one user at a time. After a disk error every call except ``close`` is refused, because
    its state is unknown; the next run opens it again and reads the records that are intact.
    """

    @property
    def complete(self) -> bool:
        """Whether the download has completed."""
        ...

    @property
    def count(self) -> int:
        """The number of records; for a complete journal it is known without reading them.

        Each tile should be appended once; a tile appended twice counts twice.
        """
        ...

    def read_into(self, tiles: TileSet) -> None:
        """Add every journaled tile to ``tiles``; a damaged record is skipped with a warning.

        A complete journal adds none: it keeps only the count, because its request is a no-op.
        """
        ...

    def append(self, tiles: Sequence[TileId]) -> None:
        """Record tiles; durable after the next ``flush``. A complete journal refuses them."""
        ...

    def flush(self) -> None:
        """Return when all appended records are durable."""
        ...

    def finish(self) -> None:
        """Write the terminal record, durably: the whole request is in the cache."""
        ...

    def close(self) -> None:
        """Release the journal's resources; it cannot be used afterwards."""
        ...


class JournalStore(Protocol):
    """Opens and discards journals."""

    def open(self, name: str) -> Journal:
        """Open a journal; create it if it does not exist."""
        ...

    def discard(self, name: str) -> None:
        """Delete a journal durably, so that its request starts over."""
        ...

    def discard_complete(self) -> None:
        """Delete every complete journal durably, because their tiles are about to change."""
        ...


def check_journal_name(name: str) -> str:
    """Return ``name`` if it has the form of ``DownloadRequest.journal_name``; else raise."""
    match = _NAME.fullmatch(name) if type(name) is str else None
    if match is None or not is_name(match[1]):
        raise InvalidValueError(
            field="journal name",
            value=name,
            problem="is not of the form <flight_id>__<request_hash>.json",
        )
    return name
