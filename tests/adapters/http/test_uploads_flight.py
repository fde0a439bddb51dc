"""Uploading a flight over real HTTP, to the reference provider, which verifies every signature."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import define, evolve, field
from support.managers import RetryBench
from support.provider import API_KEY, RunningProvider

from tileferry.adapters.filesystem.operator_files import FlightRecordFile, OperatorConfirmation
from tileferry.adapters.http import ProviderAddress, ResponseLimits, new_client
from tileferry.adapters.http.uploads import HttpUploadProvider
from tileferry.adapters.memory import (
    MemoryBlobIndex,
    MemoryEnvelopeStore,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.adapters.signing import Ed25519Keys
from tileferry.adapters.system import SystemClock
from tileferry.application import FlightUpload, UploadSettings
from tileferry.application.ports import TileUploader
from tileferry.domain.errors import (
    FlightStateNotOnGroundError,
    IdempotencyConflictError,
    InvalidStateError,
    SatelliteProviderError,
)
from tileferry.domain.tiles import (
    NewTile,
    ProviderFault,
    SectorClass,
    TileId,
    UploadOutcome,
    UploadRequest,
    VotingStatus,
)

REQUEST = UploadRequest(flight_id="F1")
CAPTURED = datetime(2026, 10, 20, tzinfo=UTC)


def tile(number: int) -> TileId:
    return TileId(source="cam", zoom=15, x=19_000 + number, y=11_000)


def picture(number: int, version: int = 0) -> bytes:
    return f"tile {number} version {version}".encode() * 50


class RecordingKeys(Ed25519Keys):
    """Keeps the sessions it made, to look at them afterwards."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []

    @contextmanager
    def open_session(self) -> Iterator[Any]:
        with super().open_session() as made:
            self.sessions.append(made)
            yield made


CLIENTS: list[httpx.Client] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


class AlwaysHeldLock:
    """A cache of our own."""

    def check_held(self) -> None:
        """Nobody else has it."""


@define
class Flight:
    """A flight's captured tiles, and the provider they go to."""

    provider: RunningProvider
    count: int = 10
    clock: SystemClock = field(factory=SystemClock)
    store: MemoryTileStore = field(init=False)
    metadata: MemoryTileMetadataStore = field(init=False)
    envelopes: MemoryEnvelopeStore = field(init=False)
    bench: RetryBench = field(factory=RetryBench)

    def __attrs_post_init__(self) -> None:
        index = MemoryBlobIndex()
        self.store = MemoryTileStore(index)
        self.metadata = MemoryTileMetadataStore(clock=self.clock, index=index)
        self.envelopes = MemoryEnvelopeStore(self.metadata)
        for number in range(self.count):
            self.capture(number)

    def capture(self, number: int, version: int = 0) -> None:
        blob = self.store.write_tile(tile(number), picture(number, version))
        self.metadata.insert_metadata(
            NewTile(
                tile_id=tile(number),
                flight_id="F1",
                produced_at=CAPTURED,
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=blob,
                voting_status=VotingStatus.PENDING,
            )
        )
        self.metadata.flush()

    def upload(self, **options: Any) -> FlightUpload:
        address = ProviderAddress(url=self.provider.url, service_api_key=API_KEY, timeout_s=5.0)
        client = new_client(address)
        CLIENTS.append(client)
        given: dict[str, Any] = {
            "provider": HttpUploadProvider(client=client, clock=self.clock),
            "tile_store": self.store,
            "tile_metadata_store": self.metadata,
            "envelopes": self.envelopes,
            "flight_records": OperatorConfirmation(flight_id="F1", said_at=CAPTURED),
            "keys": Ed25519Keys(),
            "lock": AlwaysHeldLock(),
            "retry": self.bench.create_manager(),
            "clock": self.clock,
            "logger": logging.getLogger("tests.upload"),
            "settings": UploadSettings(batch_tiles_max=4),
        }
        return FlightUpload(**(given | options))

    def statuses(self) -> list[VotingStatus]:
        return [row.voting_status for row in self.metadata.all_tiles()]

    def posts(self) -> int:
        return sum(line.method == "POST" for line in self.provider.requests)


@pytest.fixture
def provider(reference_provider: RunningProvider) -> RunningProvider:
    return reference_provider


def list_accepted(provider: RunningProvider) -> list[str]:
    return [line.tile_id for line in provider.uploads if line.status == "accepted"]


def test_flight_is_uploaded_in_signed_batches(provider: RunningProvider) -> None:
    flight = Flight(provider)
    upload = flight.upload()
    assert isinstance(upload, TileUploader)
    report = upload.upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 10)
    assert flight.statuses() == [VotingStatus.UPLOADED] * 10
    assert sorted(list_accepted(provider)) == sorted(str(tile(number)) for number in range(10))
    assert flight.posts() == 3
    assert flight.envelopes.list_open_envelopes("F1") == []
    assert list(upload.enumerate_pending_tiles("F1")) == []
    assert upload.upload_pending_tiles(REQUEST).per_tile_status == ()
    assert flight.posts() == 3


def test_batches_are_limited_in_bytes(provider: RunningProvider) -> None:
    flight = Flight(provider, count=6)
    size = len(picture(0))
    settings = UploadSettings(batch_tiles_max=100, batch_bytes_max=2 * size)
    flight.upload(settings=settings).upload_pending_tiles(REQUEST)
    assert flight.posts() == 3


def test_rejected_tile_is_reported_and_stays_pending(provider: RunningProvider) -> None:
    flight = Flight(provider)
    poison = tile(3)
    provider.set_faults({"fault": "poison", "tile": str(poison)})
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_rejected) == (UploadOutcome.PARTIAL, 1)
    (refused,) = [entry for entry in report.per_tile_status if not entry.status.acknowledged]
    assert refused.tile_id == poison
    assert refused.reason
    assert flight.statuses().count(VotingStatus.PENDING) == 1


@pytest.mark.parametrize("state", ["airborne", "unknown"])
def test_nothing_is_sent_unless_the_flight_is_on_the_ground(
    provider: RunningProvider, tmp_path: Path, state: str
) -> None:
    flight = Flight(provider, count=1)
    path = tmp_path / "record.json"
    path.write_text(
        f'{{"flight_id": "F1", "state": "{state}", "recorded_at": "2026-10-20T10:00:00Z"}}'
    )
    upload = flight.upload(flight_records=FlightRecordFile(path=path))
    for refused in (upload.confirm_flight_state, lambda: upload.upload_pending_tiles(REQUEST)):
        with pytest.raises(FlightStateNotOnGroundError, match=state):
            refused()
    path.write_text(
        '{"flight_id": "F2", "state": "on_ground", "recorded_at": "2026-10-20T10:00:00Z"}'
    )
    upload.confirm_flight_state()
    with pytest.raises(FlightStateNotOnGroundError, match="the record is for flight F2"):
        upload.upload_pending_tiles(REQUEST)
    assert flight.posts() == 0


@pytest.mark.parametrize("fault", ["lost-answer", "cut", "503"])
def test_invariant_8_retry_sends_the_same_key_bytes_and_signature(
    provider: RunningProvider, fault: str
) -> None:
    flight = Flight(provider, count=3)
    provider.set_faults({"fault": fault, "call": "upload", "times": 2})
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 3)
    # Another body under one key would be refused with a 409, another signature with a 403.
    posts = [line for line in provider.requests if line.method == "POST"]
    assert [line.status for line in posts[:-1]] == [503 if fault == "503" else None] * 2
    assert len({line.idempotency_key for line in posts}) == 1
    assert sorted(list_accepted(provider)) == sorted(str(tile(number)) for number in range(3))


def test_invariant_8_timed_out_request_is_retried_byte_for_byte(
    provider: RunningProvider,
) -> None:
    flight = Flight(provider, count=3)
    requests: list[httpx.Request] = []
    may_end = threading.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if len(requests) == 1:
            may_end.wait(10)  # the head of the answer does not come
        results = [
            {"tile_id": str(tile(number)), "status": "accepted", "reason": None}
            for number in range(3)
        ]
        return httpx.Response(200, json={"results": results})

    address = ProviderAddress(url=provider.url, service_api_key=API_KEY)
    with new_client(address, transport=httpx.MockTransport(answer)) as client:
        hasty = ResponseLimits(deadline_s=0.001)
        posting = HttpUploadProvider(client=client, clock=flight.clock, limits=hasty)
        report = flight.upload(provider=posting).upload_pending_tiles(REQUEST)
        may_end.set()
    assert (report.outcome, report.tiles_acknowledged) == (UploadOutcome.SUCCESS, 3)
    first, second = requests
    assert (first.content, first.headers) == (second.content, second.headers)


class SimulatedCrash(BaseException):
    """The process dies."""


class CrashingEnvelopes(MemoryEnvelopeStore):
    """Dies at the answer of a batch: before it is recorded, or right after it."""

    is_recording = True

    def exchange(self, *args: Any, **options: Any) -> None:
        if self.is_recording:
            super().exchange(*args, **options)
        raise SimulatedCrash


@pytest.mark.parametrize("recorded", [False, True])
def test_invariant_7_open_batch_is_resent_after_a_crash_unless_acknowledged(
    provider: RunningProvider, *, recorded: bool
) -> None:
    flight = Flight(provider, count=8)
    crashing = CrashingEnvelopes(flight.metadata)
    crashing._envelopes = flight.envelopes._envelopes
    crashing.is_recording = recorded
    with pytest.raises(SimulatedCrash):
        flight.upload(envelopes=crashing).upload_pending_tiles(REQUEST)
    left, *_ = flight.envelopes.list_open_envelopes("F1")
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert report.outcome is UploadOutcome.SUCCESS
    assert flight.statuses() == [VotingStatus.UPLOADED] * 8
    posts = [line for line in provider.requests if line.method == "POST"]
    repeated = [line.idempotency_key for line in posts].count(left.batch.key)
    assert (repeated, len(posts)) == ((1, 2) if recorded else (2, 3))
    assert sorted(list_accepted(provider)) == sorted(str(tile(number)) for number in range(8))
    assert flight.envelopes.list_open_envelopes("F1") == []


def test_invariant_8_changed_tiles_are_never_sent_under_a_used_key(
    provider: RunningProvider, caplog: pytest.LogCaptureFixture
) -> None:
    flight = Flight(provider, count=2)
    provider.set_faults({"fault": "503", "call": "upload"})
    with pytest.raises(SatelliteProviderError) as failure:
        flight.upload().upload_pending_tiles(REQUEST)
    assert failure.value.fault is ProviderFault.UNAVAILABLE
    (left,) = flight.envelopes.list_open_envelopes("F1")
    older = left.batch.tiles[0].blob
    assert older is not None
    flight.store._contents.pop(older)  # as compaction does
    flight.capture(0, version=1)
    provider.reset()
    report = flight.upload().upload_pending_tiles(REQUEST)
    assert report.outcome is UploadOutcome.SUCCESS
    keys = {line.idempotency_key for line in provider.requests if line.method == "POST"}
    assert left.batch.key not in keys
    assert "its tiles have changed" in caplog.text
    flight.envelopes.save(left)
    with pytest.raises(IdempotencyConflictError):
        flight.envelopes.save(evolve(left, body_sha256="0" * 64))


@pytest.mark.parametrize(
    ("status", "content"),
    [(400, API_KEY), (401, f"Bearer {API_KEY}"), (500, API_KEY), (200, API_KEY), (200, "{}")],
)
def test_invariant_36_api_key_echoed_by_the_provider_is_in_no_error(
    provider: RunningProvider, status: int, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    flight = Flight(provider, count=1)
    kind = {"content-type": "application/json"}
    transport = httpx.MockTransport(lambda _: httpx.Response(status, text=content, headers=kind))
    address = ProviderAddress(url=provider.url, service_api_key=API_KEY)
    with new_client(address, transport=transport) as client:
        upload = flight.upload(provider=HttpUploadProvider(client=client, clock=flight.clock))
        with pytest.raises(SatelliteProviderError) as failure:
            upload.upload_pending_tiles(REQUEST)
    cause: BaseException | None = failure.value
    while cause is not None:
        assert API_KEY not in f"{cause} {cause!r}"
        cause = cause.__cause__
    assert API_KEY not in caplog.text
    assert len(flight.envelopes.list_open_envelopes("F1")) == 1


def test_signing_key_is_wiped_after_its_session_even_when_interrupted(
    provider: RunningProvider,
) -> None:
    flight = Flight(provider, count=2)
    keys = RecordingKeys()
    provider.set_faults({"fault": "503", "call": "upload", "times": 1})

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    manager = flight.bench.create_manager(clock=replace_sleep(flight.bench.clock, interrupted))
    with pytest.raises(KeyboardInterrupt):
        flight.upload(keys=keys, retry=manager).upload_pending_tiles(REQUEST)
    (session,) = keys.sessions
    assert session._seed == bytes(32)
    assert "seed" not in repr(session)
    with pytest.raises(InvalidStateError, match="its key was wiped"):
        session.sign(b"x")
    # The envelope was durable before its first byte: it is sent again without that key.
    assert flight.upload().upload_pending_tiles(REQUEST).outcome is UploadOutcome.SUCCESS


def replace_sleep(clock: Any, sleep: Any) -> Any:
    class Interrupting:
        now, monotonic = clock.now, clock.monotonic

        def sleep(self, seconds: float) -> None:
            sleep(seconds)

    return Interrupting()
