"""Packs: what they contain, what is left out, and what is refused."""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from attrs import define, evolve, field
from support.archives import NOW, MemoryCache, create_image

from tileferry.adapters.filesystem.packs import FilePack, FilePackTarget, LocalPackFolder
from tileferry.adapters.memory import MemoryAbsentTiles, MemoryAuditSink, MemoryFlightBook
from tileferry.adapters.signing import Ed25519KeyFile
from tileferry.application import AuditTrail, packs
from tileferry.application.cache.readiness import ReadinessCheck
from tileferry.application.packs import PackReport, Packs
from tileferry.application.ports.inventory import VerificationFinding
from tileferry.application.ports.packs import PeerReport
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.domain.errors import (
    ArchiveError,
    InvalidStateError,
    InvalidValueError,
    NotFoundError,
    TileNotFoundError,
)
from tileferry.domain.tiles import (
    Area,
    BBox,
    BlobRef,
    FlightArea,
    FreshnessRule,
    OperatorNote,
    ResolutionGate,
    SectorClass,
    TileId,
    VotingStatus,
)

BOX = BBox(west=36.1, south=49.9, east=36.2, north=50.0)
AREA = Area(bbox=BOX, zoom_levels=[12], sector_class=SectorClass.STABLE_REAR)
TILES = list(AREA.coverage.tiles("sat"))
NOTE = OperatorNote(by="ann@desk")


@define
class ByteCheck:
    """Reads the bytes of tiles, as the store of a cache on disk does."""

    cache: MemoryCache

    def find_problem(self, tile_id: TileId, _blob: BlobRef) -> str | None:
        self.cache.read_content(tile_id)
        return None

    def verify(self, progress: ProgressListener = NULL_LISTENER) -> Iterator[VerificationFinding]:
        raise AssertionError(progress)


@define
class Machine:
    """A machine with a cache and a key."""

    folder: Path
    trusted: frozenset[str] = frozenset()
    cache: MemoryCache = field(factory=MemoryCache)
    absent: MemoryAbsentTiles = field(factory=MemoryAbsentTiles)
    sink: MemoryAuditSink = field(factory=MemoryAuditSink)
    book: MemoryFlightBook = field(init=False)
    packs: Packs = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir()
        cache = self.cache
        cache.lock.acquire()
        self.book = MemoryFlightBook(tiles=cache.rows, clock=cache.clock)
        self.packs = Packs(
            tile_store=cache.store,
            tile_metadata_store=cache.rows,
            absent_tiles=self.absent,
            flights=self.book,
            readiness=ReadinessCheck(
                tile_metadata_store=cache.rows,
                freshness=FreshnessRule(),
                resolution=ResolutionGate(),
                store=lambda: ByteCheck(cache),
                check_cache=lambda: None,
                clock=cache.clock,
                absent_tiles=self.absent,
            ),
            importer=cache.create_importer,
            signer=Ed25519KeyFile(self.folder / "key"),
            trusted_keys=self.trusted,
            audit=AuditTrail(logger=logging.getLogger("test"), sinks=[self.sink]),
            clock=cache.clock,
        )

    def create(self, name: str, *since: str, bytes_max: int | None = None) -> PackReport:
        return self.packs.create(
            "F1",
            FilePackTarget(path=self.folder / name),
            [FilePack(self.folder / one) for one in since],
            bytes_max=bytes_max,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Machine:
    desk = Machine(tmp_path / "desk")
    for tile in TILES[:-1]:
        desk.cache.put(tile)
    desk.absent.record_absent([TILES[-1]], at=NOW - timedelta(days=1))
    for _ in range(2):  # the same area twice, once with another sector: its tiles are packed once
        desk.book.add_area("F1", FlightArea(source="sat", area=AREA, added_at=NOW))
    other = evolve(AREA, sector_class=SectorClass.ACTIVE_CONFLICT)
    desk.book.add_area("F1", FlightArea(source="sat", area=other, added_at=NOW))
    return desk


@pytest.fixture
def aircraft(desk: Machine, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "aircraft", trusted=frozenset({desk.packs.signer.public_key}))


def test_pack_has_tiles_and_absent_tiles_once_and_in_order(desk: Machine) -> None:
    report = desk.create("a.pack")
    entries = [entry for entry, _ in FilePack(desk.folder / "a.pack").iter_entries()]
    assert [entry.tile_id for entry in entries] == sorted(TILES)
    assert (report.tiles, report.tiles_known, report.is_complete) == (len(TILES), 0, True)
    (absent,) = [entry for entry in entries if entry.absent_at is not None]
    assert (absent.tile_id, absent.length) == (TILES[-1], 0)


def test_applied_pack_brings_tiles_areas_pin_and_absent_tiles(
    desk: Machine, aircraft: Machine
) -> None:
    desk.book.pin_flight("F1", NOTE)
    desk.create("a.pack")
    applied = aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    assert applied.has_same_verdict
    assert [one.tiles_imported for one in applied.imports] == [len(TILES) - 1]
    flight = aircraft.book.find_flight("F1")
    assert flight is not None
    assert flight.areas == desk.packs.get_flight("F1").areas
    assert flight.pinned_at is not None
    assert list(aircraft.absent.find_absent(TILES)) == [TILES[-1]]
    (event,) = aircraft.sink.events
    told = event.as_json()
    assert (told["transition"], told["subject"]) == ("apply_pack", "flight F1")
    assert applied.sha256 in str(told["additional_context"])


def test_unpinned_flight_stays_unpinned(desk: Machine, aircraft: Machine) -> None:
    desk.create("a.pack")
    aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    flight = aircraft.book.find_flight("F1")
    assert flight is not None
    assert flight.pinned_at is None


@pytest.mark.parametrize(
    ("here", "in_pack", "expected"),
    [(None, 1, None), (2, 1, 2), (1, 2, 2), (1, None, None), (-1, 1, 1)],
)
def test_pin_is_never_shortened(
    desk: Machine, aircraft: Machine, here: int | None, in_pack: int | None, expected: int | None
) -> None:
    for machine, days in ((desk, in_pack), (aircraft, here)):
        machine.book.pin_flight("F1", NOTE)
        machine.book.set_expiry("F1", in_days(days), NOTE)
    desk.create("a.pack")
    aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    flight = aircraft.packs.get_flight("F1")
    assert flight.pinned_at is not None
    assert flight.expires_at == in_days(expected)


def in_days(days: int | None) -> datetime | None:
    return None if days is None else NOW + timedelta(days=days)


def test_absent_tile_keeps_its_later_date(desk: Machine, aircraft: Machine) -> None:
    aircraft.absent.record_absent([TILES[-1]], at=NOW)
    desk.create("a.pack")
    aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    assert aircraft.absent.find_absent(TILES) == {TILES[-1]: NOW}


def test_later_date_of_the_same_bytes_is_carried(desk: Machine, aircraft: Machine) -> None:
    desk.create("a.pack")
    aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    content = desk.cache.read_content(TILES[0])
    desk.cache.put(TILES[0], content, days=0)
    assert desk.create("b.pack", "a.pack").tiles == 1
    applied = aircraft.packs.apply(FilePack(desk.folder / "b.pack"), NOTE)
    assert [one.tiles_imported for one in applied.imports] == [1]
    assert aircraft.cache.get_row(TILES[0]).produced_at == desk.cache.get_row(TILES[0]).produced_at
    older = aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    assert [(one.tiles_imported, one.entries_refused) for one in older.imports] == [(0, 0)]
    assert aircraft.cache.get_row(TILES[0]).produced_at == desk.cache.get_row(TILES[0]).produced_at


@pytest.mark.parametrize("seed", [str(TILES[0]), "another"])
def test_pending_capture_is_kept(desk: Machine, aircraft: Machine, seed: str) -> None:
    aircraft.cache.put(TILES[0], create_image(seed), days=2, status=VotingStatus.PENDING)
    kept = aircraft.cache.get_row(TILES[0])
    desk.create("a.pack")
    applied = aircraft.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    assert aircraft.cache.get_row(TILES[0]) == kept
    assert [one.entries_refused for one in applied.imports] == [int(seed == "another")]


def test_tiles_of_earlier_packs_are_left_out_unless_they_changed(desk: Machine) -> None:
    desk.create("a.pack")
    desk.cache.put(TILES[0], create_image("newer"), days=0)
    desk.absent.record_absent([TILES[-1]], at=NOW)
    changed = desk.create("b.pack", "a.pack")
    assert (changed.tiles, changed.tiles_known) == (2, len(TILES) - 2)
    assert desk.create("c.pack", "a.pack", "b.pack").tiles == 0


def test_pack_of_limited_size_has_at_least_one_tile(desk: Machine) -> None:
    first = desk.create("a.pack", bytes_max=1)
    assert (first.tiles, first.is_complete) == (1, False)
    assert desk.create("b.pack", "a.pack").tiles == len(TILES) - 1


def test_pack_is_not_larger_than_its_limit(desk: Machine) -> None:
    desk.create("whole.pack")
    size = (desk.folder / "whole.pack").stat().st_size
    assert not desk.create("a.pack", bytes_max=size - 50).is_complete
    assert (desk.folder / "a.pack").stat().st_size <= size - 50
    assert desk.create("b.pack", bytes_max=size + 50).is_complete


def test_pack_that_is_not_sorted_is_rejected(desk: Machine) -> None:
    with FilePackTarget(path=desk.folder / "a.pack").open_draft(
        desk.create("whole.pack").header
    ) as draft:
        for entry, content in [*FilePack(desk.folder / "whole.pack").iter_entries()][::-1]:
            draft.add(entry, content)
        draft.seal(desk.packs.signer.sign)
        draft.publish()
    with pytest.raises(InvalidValueError, match="is not sorted"):
        desk.create("b.pack", "a.pack")


def test_damaged_tile_ends_the_pack(desk: Machine) -> None:
    desk.cache.lose_bytes(TILES[0])
    with pytest.raises(ArchiveError, match="is damaged in the cache"):
        desk.create("a.pack")
    assert not (desk.folder / "a.pack").exists()


def test_tile_with_other_bytes_ends_the_pack(
    desk: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(desk.cache.store), "read_tile", lambda *_, **__: b"other")
    with pytest.raises(ArchiveError, match="is damaged in the cache: sha256 mismatch"):
        desk.create("a.pack")


def test_tile_that_is_removed_meanwhile_ends_the_pack(
    desk: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(*_: object, **__: object) -> bytes:
        raise TileNotFoundError(tile="sat/12/1/1")

    monkeypatch.setattr(type(desk.cache.store), "read_tile", find_nothing)
    with pytest.raises(ArchiveError, match="was replaced or removed meanwhile"):
        desk.create("a.pack")


def test_earlier_pack_may_have_tiles_of_other_areas(desk: Machine) -> None:
    larger = evolve(AREA, zoom_levels=[11, 12])
    for tile in larger.coverage.tiles("sat"):
        desk.cache.put(tile)
    desk.book.add_area("F2", FlightArea(source="sat", area=larger, added_at=NOW))
    desk.packs.create("F2", FilePackTarget(path=desk.folder / "F2.pack"))
    assert desk.create("a.pack", "F2.pack").tiles == 0


def test_inventory_is_not_applied(desk: Machine, aircraft: Machine) -> None:
    flight = desk.packs.get_flight("F1")
    desk.packs.create_inventory(flight, FilePackTarget(path=desk.folder / "have.pack"))
    with pytest.raises(ArchiveError, match="is an inventory"):
        aircraft.packs.apply(FilePack(desk.folder / "have.pack"), NOTE)


def test_pack_of_an_unknown_key_is_refused(desk: Machine, tmp_path: Path) -> None:
    desk.create("a.pack")
    stranger = Machine(tmp_path / "stranger")
    with pytest.raises(ArchiveError, match="is not a key that this machine trusts"):
        stranger.packs.apply(FilePack(desk.folder / "a.pack"), NOTE)
    assert stranger.book.find_flight("F1") is None


def test_pack_that_is_replaced_after_it_was_verified_is_refused(
    desk: Machine, aircraft: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.create("a.pack")
    pack = FilePack(desk.folder / "a.pack")
    verify = FilePack.verify

    def verify_and_replace(self: FilePack, is_signed_by: Callable[..., bool]) -> str:
        digest = verify(self, is_signed_by)
        pack.path.write_bytes(b"another")
        return digest

    monkeypatch.setattr(FilePack, "verify", verify_and_replace)
    with pytest.raises(ArchiveError, match="was replaced or changed while it was read"):
        aircraft.packs.apply(pack, NOTE)


def test_unknown_and_empty_flights_are_rejected(desk: Machine) -> None:
    with pytest.raises(NotFoundError, match="F9"):
        desk.packs.get_flight("F9")
    desk.book.add_flight("F8")
    with pytest.raises(InvalidStateError, match="has no areas"):
        desk.packs.get_flight("F8")


@define
class NearPeer:
    """The other machine, without a link between."""

    machine: Machine
    folder: Path
    sent: list[int] = field(factory=list)

    def fetch_inventory(self, like: str, name: str) -> None:
        flight = FilePack(self.folder / like).read_header().flight
        self.machine.packs.create_inventory(flight, FilePackTarget(path=self.folder / name))

    def apply(self, name: str) -> PeerReport:
        applied = self.machine.packs.apply(FilePack(self.folder / name), NOTE)
        (one,) = applied.imports
        self.sent.append(one.tiles_imported)
        return PeerReport(
            is_go=applied.judged.verdict.is_go,
            tiles_imported=one.tiles_imported,
            bytes_imported=one.bytes_imported,
            entries_refused=one.entries_refused,
        )


def test_push_sends_what_is_missing_in_small_packs(
    desk: Machine, aircraft: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PUSH_BYTES_MAX", 100)
    for number, expected in enumerate([len(TILES) - 1, 0]):
        folder = tmp_path / f"push-{number}"
        folder.mkdir()
        peer = NearPeer(aircraft, folder)
        report = desk.packs.push("F1", LocalPackFolder(folder), peer)
        assert report.has_same_verdict
        assert sum(peer.sent) == expected
        assert len(peer.sent) > 1 or not expected
