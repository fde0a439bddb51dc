"""A process that uploads a flight, put together as the command is, until it ends or is killed."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from support.pictures import make_picture
from support.provider import API_KEY, RunningProvider
from tileferry.adapters.filesystem import CaptureFolderFiles, OperatorConfirmation
from tileferry.application.ports.uploads import FlightRecords
from tileferry.domain.tiles import (
    TileId,
    TileMetadata,
    UploadBatchReport,
    UploadRequest,
    build_capture_source,
)
from tileferry.entrypoints.config import C11Config, Config, Secret
from tileferry.entrypoints.config.retry_overrides import CategoryConfig, RetryConfig
from tileferry.entrypoints.container import Container

CAPTURED = datetime(2026, 10, 20, tzinfo=UTC)


@frozen(kw_only=True)
class UploadPlan:
    """What to upload, where to, and how."""

    root: Path
    database_url: str
    provider_url: str
    api_key: str
    batch_tiles: int = 10
    max_in_call_retries: int = 3

    @property
    def config(self) -> Config:
        return Config(
            database_url=Secret(self.database_url),
            retry=RetryConfig(API_REQUEST=CategoryConfig(base_delay=0.01)),
            c11=C11Config(
                cache_root=self.root,
                satellite_provider_url=self.provider_url,
                service_api_key=Secret(self.api_key),
                upload_batch_tiles=self.batch_tiles,
                max_in_call_retries=self.max_in_call_retries,
                backoff_base_s=0.01,
                http_timeout_s=5.0,
            ),
        )


def write_captures(folder: Path, tiles: int, *, size: int = 200) -> list[str]:
    """Write pictures as an aircraft leaves them; return their places."""
    places = []
    for number in range(tiles):
        path = folder / "16" / str(39_000 + number) / "22000.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_picture(f"picture {number}", size))
        places.append(f"16/{39_000 + number}/22000")
    (folder / "metadata.json").write_text('{"captured_at": "2026-10-20T08:00:00Z"}')
    return places


def ingest_captures(plan: UploadPlan, folder: Path, flight_id: str = "F1") -> None:
    """Take a folder in."""
    container = Container(config=plan.config)
    try:
        with container.cache_session().hold():
            container.capture_ingest().ingest(flight_id, CaptureFolderFiles(folder))
    finally:
        container.shutdown_resources()


def execute_upload(plan: UploadPlan, begun: Connection) -> None:
    """Upload, and say how it ended."""
    container = Container(config=plan.config)
    with container.cache_session().hold():
        word = OperatorConfirmation(flight_id="F1", said_at=CAPTURED)
        uploader = container.tile_uploader(flight_records=word)
        begun.send("begun")
        report = uploader.upload_pending_tiles(UploadRequest(flight_id="F1"))
        begun.send(report.outcome.value)
        begun.close()
    container.shutdown_resources()


REQUEST = UploadRequest(flight_id="F1")
SOURCE = build_capture_source("F1")
ON_GROUND = OperatorConfirmation(flight_id="F1", said_at=CAPTURED)


@define
class RecordingClock:
    """The machine's clock, on which nobody waits: what was asked for is noted."""

    sleeps: list[float] = field(factory=list)
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.sleeps.append(seconds)


@define
class CacheUploadEnv:
    """A flight's tiles in a cache, and the provider they go to."""

    home: Path
    database_url: str
    provider: RunningProvider
    clock: RecordingClock = field(factory=RecordingClock)
    places: list[str] = field(factory=list)

    @property
    def plan(self) -> UploadPlan:
        return UploadPlan(
            root=self.home / "cache",
            database_url=self.database_url,
            provider_url=self.provider.url,
            api_key=API_KEY,
        )

    def capture(self, tiles: int) -> None:
        """Put a flight's tiles into the cache."""
        self.places = write_captures(self.home / "card", tiles)
        ingest_captures(self.plan, self.home / "card")

    def create_config(self, **c11: Any) -> Config:
        config = self.plan.config
        return evolve(config, c11=evolve(config.c11, backoff_base_s=2.0, **c11))

    @contextmanager
    def open_container(self, **c11: Any) -> Iterator[Container]:
        """Assemble the product around the patient clock, and hold the cache."""
        container = Container(config=self.create_config(**c11), clock=self.clock)
        try:
            with container.cache_session().hold():
                yield container
        finally:
            container.shutdown_resources()

    def upload(self, *, records: FlightRecords = ON_GROUND, **c11: Any) -> UploadBatchReport:
        """Upload the flight."""
        with self.open_container(**c11) as container:
            uploader = container.tile_uploader(flight_records=records)
            return uploader.upload_pending_tiles(REQUEST)

    def read_rows(self) -> Mapping[str, TileMetadata]:
        """What the cache knows of each tile, by its place."""
        with self.open_container() as container:
            store = container.metadata_store()
            found = {}
            for place in self.places:
                row = store.get_metadata(TileId.parse(f"{SOURCE}/{place}"))
                assert row is not None
                found[place] = row
            return found

    def reject_tiles(self, *places: str, **more: Any) -> None:
        """Have the provider reject tiles."""
        self.provider.set_faults(
            *({"fault": "poison", "tile": f"{SOURCE}/{place}", **more} for place in places)
        )

    def list_sent(self) -> list[str]:
        """The places of tiles that uploads brought to the provider, in their order."""
        return [line.tile_id.removeprefix(f"{SOURCE}/") for line in self.provider.uploads]

    @property
    def posts(self) -> int:
        return sum(line.method == "POST" for line in self.provider.requests)
