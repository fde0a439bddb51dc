"""A flight to be uploaded: real cache, real Postgres, the reference provider, and no waiting."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from dependency_injector import providers

from support.provider import API_KEY, RunningProvider
from support.upload_process import CAPTURED, UploadPlan, captured, ingest
from tileferry.adapters.filesystem import OperatorsWord
from tileferry.application.ports.uploads import FlightRecords
from tileferry.domain.tiles import (
    TileId,
    TileMetadata,
    UploadBatchReport,
    UploadRequest,
    capture_source,
)
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.container import Container, tile_uploader_of
from tileferry.entrypoints.holding import locked

REQUEST = UploadRequest(flight_id="F1")
SOURCE = capture_source("F1")
LANDED = OperatorsWord(flight_id="F1", said_at=CAPTURED)


@define
class PatientClock:
    """The machine's clock, on which nobody waits: what was asked for is noted."""

    sleeps: list[float] = field(factory=list)
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.sleeps.append(seconds)


@define
class UploadSite:
    """A flight's tiles in a cache, and the provider they go to."""

    home: Path
    database_url: str
    provider: RunningProvider
    clock: PatientClock = field(factory=PatientClock)
    places: list[str] = field(factory=list)

    @property
    def plan(self) -> UploadPlan:
        return UploadPlan(
            root=self.home / "cache",
            database_url=self.database_url,
            provider_url=self.provider.url,
            api_key=API_KEY,
        )

    def captures(self, tiles: int) -> None:
        """Put a flight's tiles into the cache."""
        self.places = captured(self.home / "card", tiles)
        ingest(self.plan, self.home / "card")

    def config(self, **c11: Any) -> Config:
        config = self.plan.config
        return evolve(config, c11=evolve(config.c11, backoff_base_s=2.0, **c11))

    @contextmanager
    def container(self, **c11: Any) -> Iterator[Container]:
        """Assemble the product around the patient clock, and hold the cache."""
        container = Container(config=self.config(**c11))
        container.clock.override(providers.Object(self.clock))
        try:
            with locked(container):
                yield container
        finally:
            container.shutdown_resources()

    def uploads(self, *, records: FlightRecords = LANDED, **c11: Any) -> UploadBatchReport:
        """Upload the flight."""
        with self.container(**c11) as container:
            uploader = tile_uploader_of(container, flight_records=records)
            return uploader.upload_pending_tiles(REQUEST)

    def rows(self) -> Mapping[str, TileMetadata]:
        """What the cache knows of each tile, by its place."""
        with self.container() as container:
            store = container.metadata_store()
            found = {}
            for place in self.places:
                row = store.get_metadata(TileId.parse(f"{SOURCE}/{place}"))
                assert row is not None
                found[place] = row
            return found

    def poison(self, *places: str, **more: Any) -> None:
        """Have the provider reject tiles."""
        self.provider.misbehave(
            *({"fault": "poison", "tile": f"{SOURCE}/{place}", **more} for place in places)
        )

    def sent(self) -> list[str]:
        """The places of tiles that uploads brought to the provider, in their order."""
        return [line.tile_id.removeprefix(f"{SOURCE}/") for line in self.provider.uploads]

    @property
    def posts(self) -> int:
        return sum(line.method == "POST" for line in self.provider.requests)
