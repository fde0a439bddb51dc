"""Remembers where tiles are, so that most reads need not ask the database."""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from attrs import define, field

from tileferry.domain.tiles import BlobRef, TileId

_WRITTEN_MAX = 4096
"""Twice what a group between two commits may have."""


@define(kw_only=True, eq=False)
class LocationCache:
    """The locations used last, and the blobs written last.

    A tile's row appears some time after its bytes were written. Until the index names the new blob
    the old location must not be remembered, or it would outlive the change of the row.
    """

    _entries_max: int
    _known: OrderedDict[TileId, BlobRef] = field(factory=OrderedDict, init=False)
    _written: OrderedDict[TileId, BlobRef] = field(factory=OrderedDict, init=False)
    _changes: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @property
    def changes(self) -> int:
        """Counts what made locations void; an answer from before a change is not remembered."""
        return self._changes

    def get(self, tile_id: TileId) -> BlobRef | None:
        """Return where the tile was when the index was asked last."""
        with self._lock:
            blob = self._known.get(tile_id)
            if blob is not None:
                self._known.move_to_end(tile_id)
            return blob

    def remember(self, tile_id: TileId, blob: BlobRef, *, changes: int) -> None:
        """Keep the index's answer to a question asked after ``changes`` changes."""
        with self._lock:
            awaited = self._written.get(tile_id)
            if changes != self._changes or (awaited is not None and awaited != blob):
                return
            if self._written.pop(tile_id, None) is not None:
                # The row has changed; who asked before that may still hold the old answer.
                self._changes += 1
            _put(self._known, tile_id, blob, self._entries_max)

    def note_written(self, tile_id: TileId, blob: BlobRef) -> None:
        """Note that the tile will soon be elsewhere."""
        with self._lock:
            if self._known:
                self._known.pop(tile_id, None)
            _put(self._written, tile_id, blob, _WRITTEN_MAX)

    def drop(self, tile_ids: Iterable[TileId]) -> None:
        """Forget where tiles were, after the index was changed."""
        with self._lock:
            self._changes += 1
            for tile_id in tile_ids:
                self._known.pop(tile_id, None)

    def drop_all(self) -> None:
        """Forget everything."""
        with self._lock:
            self._changes += 1
            self._known.clear()


def _put(
    entries: OrderedDict[TileId, BlobRef], tile_id: TileId, blob: BlobRef, entries_max: int
) -> None:
    entries[tile_id] = blob
    entries.move_to_end(tile_id)
    while len(entries) > entries_max:
        entries.popitem(last=False)
