"""Acquisitions for tests: real HTTP to a provider, into a raw sink; also as a process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import define, evolve, frozen

from support.managers import create_pace
from support.provider import API_KEY
from support.raw_partitions import AREA, KEY, NOW, RUN
from tileferry.adapters.filesystem import FileRawSink
from tileferry.adapters.http import HttpTileProvider, ProviderAddress, new_client
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.system import ThreadFetchRunner, new_id
from tileferry.application import (
    AuditTrail,
    DownloadSettings,
    GroupLimits,
    PartitionAcquisition,
    RawDownloaderFactory,
    RetryManager,
)
from tileferry.application.ports.raw_partitions import RawSink
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.partitions.validator import ValidationRules

SMALL_AREA = evolve(AREA, zoom_levels=(13,))
TILES = list(SMALL_AREA.coverage.tiles("satellite"))
LOGGER = logging.getLogger("tests.acquisition")


@define
class FakeDisk:
    """A disk that has what it is told."""

    free: int = 10**12

    def free_bytes(self) -> int:
        return self.free

    def total_bytes(self) -> int:
        return 10**12


@contextmanager
def open_acquisition(
    sink: RawSink,
    url: str,
    *,
    key: str = API_KEY,
    disk: FakeDisk | None = None,
    group_tiles: int = 8,
    **rules: Any,
) -> Iterator[PartitionAcquisition]:
    """Put an acquisition together, as the worker does."""
    clock = ManualClock(NOW.timestamp())
    with new_client(ProviderAddress(url=url, service_api_key=key)) as client:
        yield PartitionAcquisition(
            sink=sink,
            downloaders=RawDownloaderFactory(
                provider=HttpTileProvider(client=client, clock=clock),
                runner=ThreadFetchRunner(32),
                retry=RetryManager(clock=clock, new_id=new_id, audit=AuditTrail(logger=LOGGER)),
                pace=create_pace(clock),
                clock=clock,
                logger=LOGGER,
                disk=lambda _folder: disk or FakeDisk(),
                free_space_reserve_bytes=1_000,
                settings=DownloadSettings(group=GroupLimits(tiles_max=group_tiles)),
            ),
            clock=clock,
            logger=LOGGER,
            rules=ValidationRules(**rules),
            imagery=ImageryDates(source="satellite"),
        )


@frozen(kw_only=True)
class AcquisitionPlan:
    """What a process acquires, and where it puts it."""

    root: Path
    url: str


def execute_acquisition(plan: AcquisitionPlan, begun: Connection) -> None:
    """Acquire a partition, and say what it is worth."""
    sink = FileRawSink(root=plan.root, clock=ManualClock(NOW.timestamp()), logger=LOGGER)
    with open_acquisition(sink, plan.url) as use_case:
        begun.send("begun")
        verdict, sealed = use_case.acquire(KEY, RUN, SMALL_AREA)
        begun.send((verdict.outcome.value, sealed.tiles))
        begun.close()
