"""Checkers of the cache: what is journaled, what is visible, what is readable, what is evicted."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import ClassVar

from attrs import define, field

from simulation.checkers.base import Checker
from simulation.provider import SimulatedProvider
from simulation.world import Call
from tileferry.adapters.memory import (
    MemoryCacheLedger,
    MemoryFlightBook,
    MemoryJournalStore,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.tiles import DownloadRequest, Flight, ProviderFault, TileId, TileMetadata

GIVE_UP_S = 30 * 60.0 - 75.0
"""How long a download goes on at least while nothing improves: until its last wait."""
RETRY_AFTER_S_MAX = 300.0


@define(eq=False)
class DurabilityChecker(Checker):
    """Journal ⊆ rows ⊆ durable, whole blobs, except for what was evicted since."""

    invariants: ClassVar[tuple[int, ...]] = (1, 2, 6)
    store: MemoryTileStore
    rows: MemoryTileMetadataStore
    journals: MemoryJournalStore
    removed: set[TileId] = field(factory=set)
    """Tiles that were evicted or pruned: journals may still list them."""

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {
            "metadata.commit": self.check_rows,
            "journals.journal.flush": self.check_journals,
            "journals.journal.finish": self.check_journals,
            "ledger.begin_transaction.end": self.note_removed,
        }

    def check_rows(self, _call: Call) -> None:
        """Check that every visible tile has its bytes on the disk."""
        for row in self.rows.all_tiles():
            if not self.store.is_durable(row.blob):
                self.fail(f"{row.tile_id} is visible, its bytes may be lost")
            self.removed.discard(row.tile_id)

    def check_journals(self, _call: Call | None = None) -> None:
        """Check that every journaled tile is visible."""
        for name in self.journals.list_names(complete=False):
            for tile in self.journals.list_durable(name):
                row = self.rows.get_metadata(tile)
                if row is None:
                    if tile not in self.removed:
                        self.fail(f"{tile} is journaled but has no row")
                elif not self.store.is_durable(row.blob):
                    self.fail(f"{tile} is journaled, its bytes are not")

    def note_removed(self, _call: Call) -> None:
        """Note what is not visible any more."""
        for name in self.journals.list_names(complete=False):
            for tile in self.journals.list_durable(name):
                if self.rows.get_metadata(tile) is None:
                    self.removed.add(tile)

    def after_power_loss(self) -> None:
        for row in self.rows.all_tiles():
            self.require(self.store.is_durable(row.blob), f"{row.tile_id} lost its bytes")
        self.check_journals()

    def at_end(self) -> None:
        self.after_power_loss()


@define(eq=False)
class EvictionChecker(Checker):
    """No tile of a pinned flight is evicted, and the cache stays within its budget."""

    invariants: ClassVar[tuple[int, ...]] = (40,)
    rows: MemoryTileMetadataStore
    ledger: MemoryCacheLedger
    flights: MemoryFlightBook
    journals: MemoryJournalStore
    budget_bytes: int
    _seen: dict[TileId, TileMetadata] = field(factory=dict)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {
            "ledger.begin_transaction": self.note_tiles,
            "ledger.begin_transaction.end": self.check_evicted,
            "metadata.commit": self.check_budget,
        }

    def note_tiles(self, _call: Call) -> None:
        self._seen = {row.tile_id: row for row in self.rows.all_tiles()}

    def check_evicted(self, _call: Call) -> None:
        """Check what a transaction removed, against the flights at that moment."""
        gone = [row for tile, row in self._seen.items() if self.rows.get_metadata(tile) is None]
        now = datetime.fromtimestamp(self.world.now(), UTC)
        for row in gone:
            for flight in self.flights.list_flights():
                self.require(
                    not _is_protected(row, flight, now),
                    f"{row.tile_id} was evicted although {flight.flight_id} is pinned",
                )
        if gone:
            complete = self.journals.list_names(complete=True)
            self.require(not complete, f"{complete} are still complete after an eviction")

    def check_budget(self, _call: Call) -> None:
        used = sum(row.blob.length for row in self.rows.all_tiles())
        self.require(
            used <= self.budget_bytes, f"{used} bytes are stored, the budget is {self.budget_bytes}"
        )


def _is_protected(row: TileMetadata, flight: Flight, now: datetime) -> bool:
    """Return whether a pin protects a tile; without the rule of the product, which may be wrong."""
    if flight.pinned_at is None or (flight.expires_at is not None and flight.expires_at <= now):
        return False
    if row.flight_id == flight.flight_id:
        return True
    tile = row.tile_id
    return any(
        known.source == tile.source
        and span.zoom == tile.zoom
        and span.x_min <= tile.x <= span.x_max
        and span.y_min <= tile.y <= span.y_max
        for known in flight.areas
        for span in known.area.coverage.ranges
    )


@define(eq=False)
class FetchChecker(Checker):
    """Nothing that is stored is fetched again; what is complete has every tile, as provided."""

    invariants: ClassVar[tuple[int, ...]] = (38, 39, 42)
    store: MemoryTileStore
    rows: MemoryTileMetadataStore
    provider: SimulatedProvider

    def __attrs_post_init__(self) -> None:
        self.provider.on_request.append(self.check_request)

    def check_request(self, tile: TileId) -> None:
        """Check that a tile that is asked for is not stored in the version that is offered."""
        self.world.checks += 1
        row = self.rows.get_metadata(tile)
        if row is None:
            return
        is_current = row.produced_at >= self.provider.get_produced_at(row.tile_id)
        self.require(
            not (is_current and self.store.is_durable(row.blob)),
            f"{row.tile_id} was fetched although it is stored",
        )

    def check_given_up(self, error: Exception, elapsed_s: float) -> None:
        """Check that a download did not end early because of a provider that may recover."""
        if isinstance(error, SatelliteProviderError) and error.fault is ProviderFault.SCHEMA:
            return  # its answers are wrong, not late
        if isinstance(error, SatelliteProviderError | RateLimitedError):
            # A wait that the provider asks for never extends the deadline.
            asked_s = min(error.retry_after_s or 0.0, RETRY_AFTER_S_MAX)
            self.require(
                elapsed_s >= GIVE_UP_S - asked_s,
                f"the download gave up after {elapsed_s:.0f} s: {error}",
            )

    def check_complete(self, request: DownloadRequest, since: Mapping[TileId, int]) -> None:
        """Check an area whose download has just succeeded, before anyone can change it.

        Its tiles are not older than what was provided when it began.
        """
        for tile in request.coverage.tiles(self.provider.source):
            row = self.rows.get_metadata(tile)
            if tile in self.provider.absent:
                continue
            self.require(row is not None, f"{tile} is missing from a complete download")
            if row is not None:
                content = self.store.read_tile(tile, blob=row.blob)
                known = self.provider.versions.get(tile, 0)
                oldest = since.get(tile, 0)
                versions = [self.provider.get_content(tile, v) for v in range(oldest, known + 1)]
                self.require(
                    content in versions, f"{tile} has old bytes, or such that were never provided"
                )
