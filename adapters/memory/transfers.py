"""In-memory download journals, listing spools and signed envelopes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from attrs import define, evolve, field

from tileferry.application.ports.journal import check_journal_name
from tileferry.application.ports.tiles import UploadStatusStore
from tileferry.domain.errors import IdempotencyConflictError, StorageError
from tileferry.domain.tiles import SignedEnvelope, TileId, TileSet, TileSummary

_KEPT_SHARE = 0.5


@define(kw_only=True, eq=False)
class _JournalContent:
    tiles: list[TileId] = field(factory=list)
    durable: int = 0
    """How many of the tiles were flushed."""
    count: int = 0
    complete: bool = False


@define(kw_only=True, eq=False)
class MemoryJournal:
    """The progress of one download."""

    _name: str
    _content: _JournalContent
    _closed: bool = field(default=False, init=False)

    @property
    def complete(self) -> bool:
        """Whether the download has finished."""
        return self._content.complete

    @property
    def count(self) -> int:
        """The number of journaled tiles."""
        return self._content.count

    def read_into(self, tiles: TileSet) -> None:
        """Add the journaled tiles to ``tiles``; a complete journal has none."""
        self._check_open("read")
        for tile in self._content.tiles:
            tiles.add(tile)

    def append(self, tiles: Sequence[TileId]) -> None:
        """Journal tiles."""
        self._check_open("append to")
        if not tiles:
            return
        if self.complete:
            self._refuse("append to", problem="it is complete")
        self._content.tiles.extend(tiles)
        self._content.count += len(tiles)

    def flush(self) -> None:
        """Make the journaled tiles safe from ``MemoryJournalStore.lose_power``."""
        self._check_open("flush")
        self._content.durable = len(self._content.tiles)

    def finish(self) -> None:
        """Mark the download as complete and drop its tiles."""
        self._check_open("finish")
        self._content.complete = True
        self._content.tiles.clear()
        self._content.durable = 0

    def close(self) -> None:
        """Close the journal; later calls raise."""
        self._closed = True

    def _check_open(self, action: str) -> None:
        if self._closed:
            self._refuse(action, problem="it was closed")

    def _refuse(self, action: str, *, problem: str) -> None:
        raise StorageError(
            action=action, path=self._name, problem=problem, remedy="reopen the journal"
        )


@define(eq=False)
class MemoryJournalStore:
    """Keeps the content of closed journals."""

    _contents: dict[str, _JournalContent] = field(factory=dict, init=False)

    def open(self, name: str) -> MemoryJournal:
        """Open a journal by name, creating it if needed."""
        content = self._contents.setdefault(check_journal_name(name), _JournalContent())
        return MemoryJournal(name=name, content=content)

    def discard(self, name: str) -> None:
        """Delete a journal."""
        self._contents.pop(check_journal_name(name), None)

    def discard_complete(self) -> None:
        """Delete all complete journals."""
        for name in [name for name, content in self._contents.items() if content.complete]:
            del self._contents[name]

    # For tests: what a disk does

    def list_durable(self, name: str) -> Sequence[TileId]:
        """Return the tiles of a journal that survive a loss of power."""
        content = self._contents[name]
        return content.tiles[: content.durable]

    def list_names(self, *, complete: bool) -> list[str]:
        """Return the names of the journals that are complete, or of those that are not."""
        return [name for name, held in self._contents.items() if held.complete is complete]

    def lose_power(self, random: Callable[[], float]) -> None:
        """Lose any of the records that were not flushed; ``random`` returns 0 to 1."""
        for content in self._contents.values():
            if content.complete:
                continue
            kept = [tile for tile in content.tiles[content.durable :] if random() < _KEPT_SHARE]
            content.tiles[content.durable :] = kept
            content.durable = content.count = len(content.tiles)


@define
class MemoryListingSpool:
    """The tiles of one listing."""

    _tiles: list[TileSummary] = field(factory=list, init=False)

    def append(self, tile: TileSummary) -> None:
        self._tiles.append(tile)

    def __iter__(self) -> Iterator[TileSummary]:
        return iter(list(self._tiles))


class MemorySpoolStore:
    """Creates listing spools."""

    @contextmanager
    def create(self, source: str) -> Iterator[MemoryListingSpool]:  # noqa: ARG002  # each tile has its source
        yield MemoryListingSpool()


@define
class MemoryEnvelopeStore:
    """Stores envelopes in insertion order."""

    tiles: UploadStatusStore
    """The metadata of the tiles."""
    _envelopes: dict[str, SignedEnvelope] = field(factory=dict, init=False)

    def save(self, envelope: SignedEnvelope) -> None:
        """Store an envelope; raise if its key already exists with different content."""
        self._check_key(envelope)
        self._envelopes.setdefault(envelope.batch.key, envelope)

    def exchange(
        self,
        answered: SignedEnvelope,
        acknowledged: Sequence[TileId],
        following: SignedEnvelope | None,
        *,
        uncounted: Collection[TileId],
    ) -> None:
        """Mark the tiles as uploaded, delete the answered envelope, and store the next one."""
        if following is not None:
            self._check_key(following)
        self.tiles.mark_uploaded(*acknowledged)
        if not uncounted:
            self.close(answered)
        elif answered.batch.key in self._envelopes:
            self._envelopes[answered.batch.key] = evolve(
                answered, batch=answered.batch.with_rejections(uncounted)
            )
        if following is not None:
            self.save(following)

    def _check_key(self, envelope: SignedEnvelope) -> None:
        key = envelope.batch.key
        known = self._envelopes.get(key, envelope)
        if known != envelope:
            raise IdempotencyConflictError(
                key=key,
                recorded_fingerprint=known.body_sha256,
                offered_fingerprint=envelope.body_sha256,
            )

    def list_open_envelopes(self, flight_id: str) -> Sequence[SignedEnvelope]:
        """Return the open envelopes of a flight, oldest first."""
        return [each for each in self._envelopes.values() if each.batch.flight_id == flight_id]

    def close(self, envelope: SignedEnvelope) -> None:
        """Delete an envelope."""
        self._envelopes.pop(envelope.batch.key, None)
