"""Create packs of a flight, and apply them on another machine."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from attrs import define, evolve, frozen

from tileferry.application.archive.archive_import import ArchiveImport, ImportReport, ImportRequest
from tileferry.application.audit import AuditTrail
from tileferry.application.cache.readiness import FlightVerdict, ReadinessCheck
from tileferry.application.cache.tile_lookup import query_area, read_verified_tile
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.flights import FlightBook
from tileferry.application.ports.packs import (
    PackFolder,
    PackPeer,
    PackReader,
    PackSigner,
    PackTarget,
    PeerReport,
)
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressListener,
    Task,
)
from tileferry.application.ports.tiles import AbsentTiles, TileCatalogue, TileStore
from tileferry.domain.archives import TileFacts
from tileferry.domain.audit import StateChanged
from tileferry.domain.errors import (
    ArchiveError,
    DamagedTileError,
    InvalidStateError,
    InvalidValueError,
    NotFoundError,
    Remedy,
)
from tileferry.domain.packs import SEAL_BYTES, PackEntry, PackHeader, check_trusted
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import (
    Flight,
    FlightArea,
    OperatorNote,
    SectorClass,
    TileId,
    TileMetadata,
)

_TILE_PACKED = ItemsProcessed(task=Task.EXPORT)
_ABSENT_BATCH = 1_000
PUSH_BYTES_MAX = 64 * 1024 * 1024
"""The size of one pack of a push: at most this much is sent again after an interruption."""
_AREAS, _INVENTORY = "areas.pack", "inventory.pack"


@frozen(kw_only=True)
class PackReport:
    """A pack that was created."""

    header: PackHeader
    sha256: str
    tiles: int
    bytes_packed: int
    tiles_known: int
    """The tiles that are left out, because the other machine has them."""
    is_complete: bool = True
    """Whether no tile is left for another pack."""


@frozen(kw_only=True)
class AppliedPack:
    """The result of applying a pack."""

    header: PackHeader
    sha256: str
    imports: Sequence[ImportReport]
    judged: FlightVerdict

    @property
    def has_same_verdict(self) -> bool:
        """Whether the flight is as ready here as where the pack was created."""
        return self.judged.verdict.is_go == self.header.is_go


@frozen(kw_only=True)
class PushReport:
    """What another machine said about the packs that it was sent."""

    header: PackHeader
    answers: Sequence[PeerReport]

    @property
    def is_go(self) -> bool:
        """The verdict of the other machine, at the end."""
        return self.answers[-1].is_go

    @property
    def has_same_verdict(self) -> bool:
        return self.is_go == self.header.is_go


@define(kw_only=True)
class Packs:
    """The use cases. Creating only reads the cache; applying requires its lock."""

    tile_store: TileStore
    tile_metadata_store: TileCatalogue
    absent_tiles: AbsentTiles
    flights: FlightBook
    readiness: ReadinessCheck
    importer: Callable[[], ArchiveImport]
    signer: PackSigner
    trusted_keys: frozenset[str]
    audit: AuditTrail
    clock: Clock
    progress: ProgressListener = NULL_LISTENER

    def create(
        self,
        flight_id: str,
        target: PackTarget,
        since: Sequence[PackReader] = (),
        *,
        bytes_max: int | None = None,
    ) -> PackReport:
        """Write the tiles of a flight, apart from those in earlier packs or inventories.

        A pack ends before ``bytes_max``, but has at least one; the next one continues it.
        """
        flight = self.get_flight(flight_id)
        judged = self.readiness.check_flight(flight, quick=True)  # every byte is read below
        header = self._build_header(flight, is_go=judged.verdict.is_go, has_content=True)
        known = _KnownTiles(since)
        tiles = size_bytes = tiles_known = 0
        is_complete = True
        room = 0 if bytes_max is None else bytes_max - len(header.to_line()) - SEAL_BYTES
        with target.open_draft(header) as draft:
            for entry, row in self._iter_entries(flight):
                if known.has(entry):
                    tiles_known += 1
                    continue
                content = b"" if row is None else self._read_content(row, target)
                packed = evolve(entry, length=len(content))
                room -= 0 if bytes_max is None else len(packed.to_line()) + len(content)
                if tiles and room < 0:
                    is_complete = False
                    break
                draft.add(packed, content)
                tiles += 1
                size_bytes += len(content)
                self.progress(_TILE_PACKED)
            sealed = draft.seal(self.signer.sign)
            digest = sealed.verify(self.signer.verify)
            draft.publish()
        return PackReport(
            header=header,
            sha256=digest,
            tiles=tiles,
            bytes_packed=size_bytes,
            tiles_known=tiles_known,
            is_complete=is_complete,
        )

    def create_inventory(
        self, flight: Flight, target: PackTarget, *, is_empty: bool = False
    ) -> PackReport:
        """Write which tiles of a flight's areas this machine has, without their content.

        An empty one only names the areas.
        """
        header = self._build_header(flight, is_go=False, has_content=False)
        tiles = 0
        with target.open_draft(header) as draft:
            for entry, _ in () if is_empty else self._iter_entries(flight):
                draft.add(entry, b"")
                tiles += 1
            digest = draft.seal(self.signer.sign).verify(self.signer.verify)
            draft.publish()
        return PackReport(header=header, sha256=digest, tiles=tiles, bytes_packed=0, tiles_known=0)

    def push(self, flight_id: str, folder: PackFolder, peer: PackPeer) -> PushReport:
        """Send another machine what it lacks of a flight, in packs of limited size.

        After an interruption, the packs that were applied are not sent again.
        """
        self.create_inventory(
            self.get_flight(flight_id), folder.build_target(_AREAS), is_empty=True
        )
        peer.fetch_inventory(_AREAS, _INVENTORY)
        known = [folder.open_pack(_INVENTORY)]
        answers: list[PeerReport] = []
        while True:
            name = f"{len(known)}.pack"
            created = self.create(
                flight_id, folder.build_target(name), known, bytes_max=PUSH_BYTES_MAX
            )
            answers.append(peer.apply(name))
            known.append(folder.open_pack(name))
            if created.is_complete:
                return PushReport(header=created.header, answers=answers)

    def apply(self, pack: PackReader, note: OperatorNote) -> AppliedPack:
        """Verify every byte of a pack, store its tiles, and judge the flight.

        Applying it again changes nothing; after an interruption, it adds what is missing.
        """
        header = pack.read_header()
        if not header.has_content:
            raise ArchiveError(
                path=pack.place,
                problem="is an inventory: it has no tiles to apply",
                remedy=Remedy.CREATE_PACK,
            )
        digest = pack.verify(self._is_trusted_signature)
        flight = header.flight
        for item in flight.areas:
            self.flights.add_area(flight.flight_id, item)
        known = self.get_flight(flight.flight_id)
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        if flight.pinned_at is not None and not known.outlasts(flight, now):
            self.flights.pin_flight(flight.flight_id, note)
            self.flights.set_expiry(flight.flight_id, flight.expires_at, note)
        imports = [
            self.importer().import_archive(
                _PackArchive(pack, source),
                ImportRequest(
                    source=source,
                    flight_id=flight.flight_id,
                    # The sender's gates accepted the tiles; how old each may be is for the verdict.
                    sector_class=SectorClass.STABLE_REAR,
                    replaces_tiles=True,
                ),
            )
            for source in sorted({item.source for item in flight.areas})
        ]
        self._record_absent(pack)
        judged = self.readiness.check_flight(self.get_flight(flight.flight_id))
        self._audit_applied(header, digest, imports, note)
        return AppliedPack(header=header, sha256=digest, imports=imports, judged=judged)

    def _is_trusted_signature(self, key: str, message: bytes, signature: bytes) -> bool:
        check_trusted(key, self.trusted_keys | {self.signer.public_key})
        return self.signer.verify(key, message, signature)

    def get_flight(self, flight_id: str) -> Flight:
        """Return a flight; raise if it is unknown or has no areas."""
        found = self.flights.find_flight(flight_id)
        if found is None:
            raise NotFoundError(what="flight", name=flight_id, remedy=Remedy.LIST_FLIGHTS)
        if not found.areas:
            raise InvalidStateError(
                subject=f"flight {flight_id}",
                problem="it has no areas",
                remedy=Remedy.DOWNLOAD_AREA,
            )
        return found

    def _build_header(self, flight: Flight, *, is_go: bool, has_content: bool) -> PackHeader:
        return PackHeader(
            flight=flight,
            is_go=is_go,
            created_at=datetime.fromtimestamp(self.clock.now(), UTC),
            public_key=self.signer.public_key,
            has_content=has_content,
        )

    def _iter_entries(self, flight: Flight) -> Iterator[tuple[PackEntry, TileMetadata | None]]:
        """Yield the stored and absent tiles of a flight in order, each once."""
        parts = [part for item in flight.areas for part in self._iter_area(item)]
        last: TileId | None = None
        for entry, row in heapq.merge(*parts, key=lambda part: part[0].sort_key):
            if entry.tile_id != last:
                yield entry, row
            last = entry.tile_id

    def _iter_area(self, item: FlightArea) -> list[Iterator[tuple[PackEntry, TileMetadata | None]]]:
        coverage, source = item.area.coverage, item.source
        stored = (
            (PackEntry(tile_id=row.tile_id, facts=TileFacts.from_metadata(row)), row)
            for row in query_area(self.tile_metadata_store, coverage, source=source)
        )
        absent = sorted(
            (
                (PackEntry(tile_id=tile, absent_at=at), None)
                for tile, at in self.absent_tiles.query_absent(coverage, source=source)
            ),
            key=lambda part: part[0].sort_key,
        )
        return [stored, iter(absent)]

    def _read_content(self, row: TileMetadata, target: PackTarget) -> bytes:
        """Return the bytes of a tile; the pack must be complete, so a damaged one ends it."""
        try:
            found = read_verified_tile(row, self.tile_store, self.tile_metadata_store)
        except DamagedTileError as error:
            raise ArchiveError(
                path=target.place,
                problem=f"tile {row.tile_id} is damaged in the cache: {error.problem}",
                remedy=Remedy.VERIFY_CACHE,
            ) from error
        if found is None or found.metadata.blob.sha256 != row.blob.sha256:
            raise ArchiveError(
                path=target.place,
                problem=f"tile {row.tile_id} was replaced or removed meanwhile",
                remedy="wait until the download has finished, then re-run",
            )
        return found.content

    def _record_absent(self, pack: PackReader) -> None:
        entries = (entry for entry, _ in pack.iter_entries() if entry.absent_at is not None)
        while batch := list(islice(entries, _ABSENT_BATCH)):
            known = self.absent_tiles.find_absent([entry.tile_id for entry in batch])
            for at in {entry.absent_at for entry in batch if entry.absent_at is not None}:
                tiles = [entry.tile_id for entry in batch if entry.absent_at == at]
                later = [tile for tile in tiles if tile not in known or known[tile] < at]
                self.absent_tiles.record_absent(later, at=at)

    def _audit_applied(
        self, header: PackHeader, digest: str, imports: Sequence[ImportReport], note: OperatorNote
    ) -> None:
        flight_id = header.flight.flight_id
        self.audit.emit(
            StateChanged(
                timestamp=datetime.fromtimestamp(self.clock.now(), UTC),
                correlation_id=flight_id,
                subject=f"flight {flight_id}",
                transition="apply_pack",
                from_status=None,
                to_status="applied",
                actor=Actor.OPERATOR,
                reason=note.reason,
                additional_context={
                    "by": note.by,
                    "pack_sha256": digest,
                    "public_key": header.public_key,
                    "tiles_imported": sum(one.tiles_imported for one in imports),
                    "tiles_unchanged": sum(one.tiles_unchanged for one in imports),
                },
            )
        )


class _KnownTiles:
    """The tiles of earlier packs, read alongside the tiles of a new one: all are in one order."""

    def __init__(self, packs: Sequence[PackReader]) -> None:
        self._entries = heapq.merge(
            *(_iter_in_order(pack) for pack in packs), key=lambda entry: entry.sort_key
        )
        self._next: PackEntry | None = next(self._entries, None)

    def has(self, entry: PackEntry) -> bool:
        """Return whether the newest pack with this tile has this version, or the same bytes with a
        later date.
        """
        found: PackEntry | None = None
        while self._next is not None and self._next.sort_key <= entry.sort_key:
            if self._next.sort_key == entry.sort_key:
                found = self._next
            self._next = next(self._entries, None)
        if found is None or (found.facts.sha256, found.absent_at) != (
            entry.facts.sha256,
            entry.absent_at,
        ):
            return False
        at, known_at = entry.facts.produced_at, found.facts.produced_at
        return at is None or (known_at is not None and known_at >= at)


def _iter_in_order(pack: PackReader) -> Iterator[PackEntry]:
    last: tuple[str, int, int, int] | None = None
    for entry, _ in pack.iter_entries():
        if last is not None and entry.sort_key <= last:
            raise InvalidValueError(field="pack", value=pack.place, problem="is not sorted")
        last = entry.sort_key
        yield entry


@frozen
class _PackArchive:
    """The tiles of one source in a pack, as the import reads them."""

    pack: PackReader
    source: str

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        for entry, _ in self.pack.iter_entries():
            if entry.tile_id.source == source and entry.absent_at is None:
                yield entry.tile_id, entry.length

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        for entry, content in self.pack.iter_entries():
            if entry.tile_id.source == source and entry.absent_at is None:
                yield ArchivedTile(tile_id=entry.tile_id, content=content, facts=entry.facts)
