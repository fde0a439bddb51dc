"""What a download has finished, so that a run after a crash fetches none of it again."""

import re
from collections.abc import Sequence
from typing import Protocol

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId, TileSet
from tileferry.domain.validation import is_name

_NAME = re.compile(r"([^/\0]+)__[0-9a-f]{16}\.json", re.ASCII)


class TileLog(Protocol):
    """Is told which tiles are durable, a group at a time."""

    def append(self, tiles: Sequence[TileId]) -> None:
        """Note tiles; they are durable after the next ``flush``."""
        ...

    def flush(self) -> None:
        """Return once everything appended before is durable."""
        ...


class Journal(TileLog, Protocol):
    """The progress of one download. A tile belongs in it once its blob and its row are durable.

    It has one user at a time. After an error of the disk nothing that it holds can be relied on:
    every further call but ``close`` is refused, and the run that opens it anew reads what is there.
    """

    @property
    def complete(self) -> bool:
        """Whether the download had ended well."""
        ...

    @property
    def count(self) -> int:
        """How many tiles it holds; of a complete one, without reading them.

        Each tile is appended once; one that is appended twice counts twice.
        """
        ...

    def read_into(self, tiles: TileSet) -> None:
        """Add every journaled tile to ``tiles``; a damaged record is skipped with a warning.

        A complete journal adds none: its request is a no-op, so it keeps their count only.
        """
        ...

    def append(self, tiles: Sequence[TileId]) -> None:
        """Note tiles; they are durable after the next ``flush``. A complete journal takes none."""
        ...

    def flush(self) -> None:
        """Return once everything appended before is durable."""
        ...

    def finish(self) -> None:
        """Write the terminal record, durably: the whole request is in the cache."""
        ...

    def close(self) -> None:
        """Release what it holds open; it cannot be used any more."""
        ...


class JournalStore(Protocol):
    """Where journals are."""

    def open(self, name: str) -> Journal:
        """Open the journal of that name, new or with what an earlier run left."""
        ...

    def discard(self, name: str) -> None:
        """Forget a journal, durably: its request begins anew."""
        ...

    def discard_complete(self) -> None:
        """Forget every complete journal, durably, since what they vouch for is about to change."""
        ...


def check_journal_name(name: str) -> str:
    """Return ``name`` when it is one that ``DownloadRequest.journal_name`` gives."""
    match = _NAME.fullmatch(name) if type(name) is str else None
    if match is None or not is_name(match[1]):
        raise InvalidValueError(
            field="journal name",
            value=name,
            problem="is not of the form <flight_id>__<request_hash>.json",
        )
    return name
