"""The simulated parts of an upload: the provider, the keys, the captures and the aircraft."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zlib import compress, crc32

from attrs import define, field, frozen

from simulation.provider import LATENCY_S
from simulation.world import World
from tileferry.application.ports.captures import CaptureFile
from tileferry.domain.tiles import (
    Batch,
    FlightRecord,
    FlightState,
    PerTileStatus,
    SignedEnvelope,
    TileId,
    TileUploadStatus,
)

CAPTURED = datetime(2026, 10, 20, tzinfo=UTC)
ACCEPTED, REJECTED = TileUploadStatus.ACCEPTED, TileUploadStatus.REJECTED


@define(eq=False)
class SimulatedUploadProvider:
    """Answers a key once and for all, as the contract of the provider says."""

    world: World
    path: str = "/api/satellite/tiles"
    stubborn: dict[TileId, int] = field(factory=dict)
    """How often it rejects a tile before it accepts it."""
    on_post: list[Callable[[SignedEnvelope, str], None]] = field(factory=list)
    answers: dict[str, tuple[PerTileStatus, ...]] = field(factory=dict)
    accepted: set[tuple[TileId, str]] = field(factory=set)
    rejections: dict[TileId, set[str]] = field(factory=lambda: defaultdict(set))
    """The keys of the batches in which it rejected a tile."""

    def iter_body(self, batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
        yield batch.manifest
        yield from contents

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        """Take a batch, and answer it as before if it is known."""
        digest = sha256(b"".join(self.iter_body(envelope.batch, contents))).hexdigest()
        for notify in self.on_post:
            notify(envelope, digest)
        key = envelope.batch.key
        if key not in self.answers:
            self.answers[key] = tuple(
                self._judge(tile.tile_id, tile.sha256, key) for tile in envelope.batch.tiles
            )
        self._answer_later()
        return self.answers[key]

    def _judge(self, tile: TileId, digest: str, key: str) -> PerTileStatus:
        if (tile, digest) in self.accepted:
            return PerTileStatus(tile_id=tile, status=TileUploadStatus.DUPLICATE)
        if len(self.rejections[tile]) < self.stubborn.get(tile, 0):
            self.rejections[tile].add(key)
            return PerTileStatus(tile_id=tile, status=REJECTED, reason="blurred")
        self.accepted.add((tile, digest))
        return PerTileStatus(tile_id=tile, status=ACCEPTED)

    def _answer_later(self) -> None:
        least_s, most_s = LATENCY_S
        self.world.wait(least_s + (most_s - least_s) * self.world.schedule.random())


@frozen
class SimulatedSession:
    """Signs with a hash: whether a signature is valid is for the real adapter to prove."""

    public_key: bytes

    def sign(self, message: bytes) -> bytes:
        return sha256(self.public_key + message).digest() * 2


@define(eq=False)
class SimulatedKeys:
    """Makes another key for each session."""

    sessions: int = 0

    @contextmanager
    def open_session(self) -> Iterator[SimulatedSession]:
        self.sessions += 1
        yield SimulatedSession(sha256(str(self.sessions).encode()).digest())


@define(eq=False)
class SimulatedAircraft:
    """Is in the air until it lands."""

    world: World
    flight_id: str
    lands_at_s: float = 0.0

    def is_on_ground(self) -> bool:
        return self.world.time_s >= self.lands_at_s

    def get_current(self) -> FlightRecord:
        state = FlightState.ON_GROUND if self.is_on_ground() else FlightState.AIRBORNE
        return FlightRecord(flight_id=self.flight_id, state=state, recorded_at=CAPTURED)


@define(eq=False)
class SimulatedCaptures:
    """The folder with what an aircraft captured."""

    tiles: list[TileId]
    versions: dict[TileId, int] = field(factory=dict)

    def read_facts(self) -> bytes | None:
        return None

    def iter_files(self) -> Iterator[CaptureFile]:
        for tile in self.tiles:
            version = self.versions.get(tile, 0)
            yield CaptureFile(
                parts=(str(tile.zoom), str(tile.x), f"{tile.y}.png"),
                size_bytes=len(self.get_content(tile, version)),
                changed_at=CAPTURED + timedelta(minutes=version),
            )

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        zoom, x, name = file.parts
        y = int(name.removesuffix(".png"))
        tile = TileId(source=self.tiles[0].source, zoom=int(zoom), x=int(x), y=y)
        return self.get_content(tile, self.versions.get(tile, 0))[:bytes_max]

    def capture_again(self, tile: TileId) -> None:
        """Replace a capture by a later one."""
        self.versions[tile] = self.versions.get(tile, 0) + 1

    def get_content(self, tile: TileId, version: int) -> bytes:
        """Return a PNG of one pixel with a comment."""
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            len(body).to_bytes(4) + name + body + crc32(name + body).to_bytes(4)
            for name, body in (
                (b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"),
                (b"tEXt", f"{tile} {version}".encode()),
                (b"IDAT", compress(b"\0\0")),
                (b"IEND", b""),
            )
        )
