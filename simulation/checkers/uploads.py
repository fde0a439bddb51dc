"""Checkers of uploads: acknowledgements, repeats, attempts and giveups."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar

from attrs import define, field

from simulation.checkers.base import Checker
from simulation.uploads import SimulatedUploadProvider
from simulation.world import Call
from tileferry.adapters.memory import (
    MemoryAuditSink,
    MemoryEnvelopeStore,
    MemoryFdrClient,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.domain.audit import TileGivenUp
from tileferry.domain.tiles import SignedEnvelope, TileId, TileMetadata, VotingStatus

_MOVES = {
    ("pending", "uploaded"),
    ("pending", "upload_giveup"),
    ("uploaded", "pending"),  # a newer capture takes its place
}


@define(eq=False)
class UploadChecker(Checker):
    """Nothing acknowledged is sent again; a repeat is the same to the byte."""

    invariants: ClassVar[tuple[int, ...]] = (7, 8)
    provider: SimulatedUploadProvider
    rows: MemoryTileMetadataStore
    envelopes: MemoryEnvelopeStore
    is_on_ground: Callable[[], bool]
    _sent: dict[str, SignedEnvelope] = field(factory=dict)
    _acknowledged: set[tuple[TileId, str]] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.provider.on_post.append(self.check_post)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {"envelopes.exchange": self.note_acknowledged}

    def note_acknowledged(self, _call: Call) -> None:
        self._acknowledged |= {
            (row.tile_id, row.blob.sha256)
            for row in self.rows.all_tiles()
            if row.voting_status is VotingStatus.UPLOADED
        }

    def check_post(self, envelope: SignedEnvelope, body_sha256: str) -> None:
        """Check a batch that arrives at the provider."""
        self.world.checks += 1
        key = envelope.batch.key
        self.require(self.is_on_ground(), "a batch is sent while the aircraft is in the air")
        self.require(body_sha256 == envelope.body_sha256, f"batch {key}: the signed hash differs")
        saved = self.envelopes.list_open_envelopes(envelope.batch.flight_id)
        self.require(envelope in saved, f"batch {key} is sent but not stored")
        first = self._sent.setdefault(key, envelope)
        self.require(first == envelope, f"batch {key} is repeated with other bytes or signature")
        for tile in envelope.batch.tiles:
            row = self.rows.get_metadata(tile.tile_id)
            self.require(row is not None, f"{tile.tile_id} is sent but not in the cache")
            self.require(
                row is None
                or row.blob.sha256 != tile.sha256
                or row.voting_status is VotingStatus.PENDING,
                f"{tile.tile_id} is sent although it is {row and row.voting_status}",
            )
            self.require(
                (tile.tile_id, tile.sha256) not in self._acknowledged,
                f"{tile.tile_id} is sent although these bytes are acknowledged",
            )


@define(eq=False)
class AttemptChecker(Checker):
    """Attempts rise by one for each rejection, and end at their bound with a recorded giveup."""

    invariants: ClassVar[tuple[int, ...]] = (9,)
    provider: SimulatedUploadProvider
    rows: MemoryTileMetadataStore
    store: MemoryTileStore
    recorder: MemoryFdrClient
    log: MemoryAuditSink
    attempts_max: int
    replaced: set[TileId] = field(factory=set)
    """Tiles that were captured again."""
    _known: dict[TileId, TileMetadata] = field(factory=dict)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return dict.fromkeys(
            (
                "metadata.commit",
                "envelopes.exchange",
                "metadata.update_voting_status",
                "metadata.increment_upload_attempts",
            ),
            self.check_rows,
        )

    def check_rows(self, _call: Call) -> None:
        """Compare the rows with those before the last change."""
        for row in self.rows.all_tiles():
            before = self._known.get(row.tile_id)
            if row is before:
                continue
            self._known[row.tile_id] = row
            self._check_row(row)
            if before is not None:
                self._check_change(before, row)

    def _check_row(self, row: TileMetadata) -> None:
        rejected = len(self.provider.rejections[row.tile_id])
        self.require(
            row.upload_attempts <= min(rejected, self.attempts_max),
            f"{row.tile_id}: {row.upload_attempts} attempts, {rejected} rejections",
        )
        if row.voting_status is VotingStatus.UPLOADED:
            self.require(
                (row.tile_id, row.blob.sha256) in self.provider.accepted,
                f"{row.tile_id} is marked as uploaded, but the provider does not have it",
            )
        if row.voting_status is VotingStatus.UPLOAD_GIVEUP:
            self.require(
                row.upload_attempts == self.attempts_max,
                f"{row.tile_id} is given up after {row.upload_attempts} attempts",
            )
            self.require(
                str(row.tile_id) in self.list_recorded(), f"{row.tile_id}: giveup not on the disk"
            )

    def _check_change(self, before: TileMetadata, row: TileMetadata) -> None:
        added = row.upload_attempts - before.upload_attempts
        self.require(added in {0, 1}, f"{row.tile_id}: attempts changed by {added}")
        move = before.voting_status.value, row.voting_status.value
        if move[0] != move[1]:
            self.world.transitions["tile " + " -> ".join(move)] += 1
            self.require(move in _MOVES, f"{row.tile_id} went from {move[0]} to {move[1]}")

    def list_recorded(self) -> set[str]:
        """Return the tiles whose giveup is recorded, whatever happens to the power."""
        return {
            str(record.payload["tile_id"])
            for record in self.recorder.records()
            if record.sequence <= self.recorder._durable
        }

    def at_end(self) -> None:
        recorded = self.list_recorded()
        audited = {one.tile_id for one in self.log.events if isinstance(one, TileGivenUp)}
        sent: dict[TileId, int] = defaultdict(int)
        for row in self.rows.all_tiles():
            tile = row.tile_id
            sent[tile] = len(self.provider.rejections[tile])
            self.require(row.voting_status is not VotingStatus.PENDING, f"{tile} is still pending")
            self.require(
                row.upload_attempts == sent[tile],
                f"{tile}: {row.upload_attempts} attempts, {sent[tile]} rejections",
            )
            if row.voting_status is VotingStatus.UPLOAD_GIVEUP:
                self.require(str(tile) in recorded, f"{tile} is given up without a record")
                self.require(
                    str(tile) in audited or self.world.fault_pairs, f"{tile}: giveup not audited"
                )
