"""The work that is interrupted by power cuts, and the log of what was promised to the operator.

Runs as a process: ``python -m powerloss.workload DISK PROVIDER_URL PROMISES``. A promise is written
to PROMISES, which is not on DISK, when the product reports something as done.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from attrs import define, field, frozen
from support.cache_upload_env import write_captures
from support.provider import API_KEY

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.application.ports.progress import BatchAnswered, ProgressEvent, TilesStored
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import BBox, DownloadRequest, SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.flight import OperatorNote
from tileferry.domain.work import AcquirePartition
from tileferry.entrypoints.config import C6Config, C11Config, Config, PartitionsConfig
from tileferry.entrypoints.embedding import Tileferry

SECTOR = SectorClass.STABLE_REAR
AREAS = {
    "F1": Area(bbox=BBox.parse("36.20,49.90,36.30,49.95"), zoom_levels=[15], sector_class=SECTOR),
    "F2": Area(bbox=BBox.parse("36.40,49.90,36.50,49.95"), zoom_levels=[15], sector_class=SECTOR),
    "F3": Area(bbox=BBox.parse("36.60,49.90,36.70,49.95"), zoom_levels=[15], sector_class=SECTOR),
}
CAPTURED = "C1"
CAPTURES = 24
POISONED = "16/39003/22000"
"""A captured tile that the provider rejects each time, until it is given up."""
PARTITION = PartitionKey(
    source="satellite", customer_id="acme", query_name="derkachi", logical_date=date(2026, 10, 1)
)
BUDGET_BYTES = 3_200_000
"""Less than the three areas together need, so that the third evicts tiles."""


@frozen(kw_only=True)
class Site:
    """Where the product keeps its data, and its provider."""

    disk: Path
    provider_url: str
    budget_bytes: int = BUDGET_BYTES

    def create_config(self) -> Config:
        return Config(
            data_dir=self.disk / "postgres",
            c6=C6Config(budget_bytes=self.budget_bytes, free_space_reserve_bytes=0),
            c11=C11Config(
                cache_root=self.disk / "cache",
                satellite_provider_url=self.provider_url,
                service_api_key=API_KEY,
                backoff_base_s=0.0,
                upload_batch_tiles=5,
            ),
            partitions=PartitionsConfig(raw_root=self.disk / "raw"),
        )

    def create_request(self, flight: str) -> DownloadRequest:
        return DownloadRequest(flight_id=flight, area=AREAS[flight], cache_root=self.disk / "cache")


@frozen(kw_only=True)
class Promise:
    """Something that was reported as done, and when."""

    at_s: float
    what: str
    facts: dict[str, Any]


def iter_promises(path: Path) -> Iterator[Promise]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield Promise(**json.loads(line))


@define
class PromiseLog:
    """Writes promises as they are made; it is also the listener of the product."""

    file: TextIO
    flight: str = field(default="", init=False)

    def add(self, what: str, **facts: Any) -> None:
        line = {"at_s": time.time(), "what": what, "facts": facts}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def __call__(self, event: ProgressEvent, /) -> None:
        if isinstance(event, TilesStored) and event.tiles:
            self.add("stored", flight=self.flight, tiles=event.tiles)
        elif isinstance(event, BatchAnswered):
            answers = event.answers
            self.add(
                "answered", acknowledged=[str(a.tile_id) for a in answers if a.status.acknowledged]
            )


def work(site: Site, promises: PromiseLog, card: Path) -> None:
    """Do what an operator does from an empty disk on, one step after the other."""
    with Tileferry(site.create_config(), listener=promises) as ferry:
        ferry.upgrade_database()
        promises.add("schema")
    with Tileferry(site.create_config(), listener=promises) as ferry:
        _download(ferry, promises, "F1")
        ferry.flights.pin("F1", OperatorNote(by="operator"))
        promises.add("pinned", flight="F1")
        ferry.ingest(card, flight=CAPTURED)
        promises.add("ingested", tiles=CAPTURES)
        while ferry.tile_inventory.count_pending(CAPTURED):
            ferry.upload(flight=CAPTURED, on_ground=True)
        promises.add("given_up", tiles=[str(g.tile.tile_id) for g in ferry.giveups.iter_giveups()])
        _acquire(ferry, promises)
    with Tileferry(site.create_config(), listener=promises) as ferry:
        _download(ferry, promises, "F2")
        _export(ferry, promises, site.disk / "export.pmtiles")
        _download(ferry, promises, "F3")  # evicts tiles of F2, but none of F1
        _export(ferry, promises, site.disk / "export.mbtiles")
        promises.add("end")


def _download(ferry: Tileferry, promises: PromiseLog, flight: str) -> None:
    promises.flight = flight
    area = AREAS[flight]
    report = ferry.download(
        bbox=area.bbox, zoom_levels=area.zoom_levels, flight=flight, sector=area.sector_class
    )
    promises.add(
        "downloaded", flight=flight, outcome=report.outcome.value, tiles=report.tiles_downloaded
    )
    promises.add("audited", entries=ferry.audit_reader.log.read_head().sequence)


def _acquire(ferry: Tileferry, promises: PromiseLog) -> None:
    work = AcquirePartition(key=PARTITION, area=AREAS["F1"])
    ferry.partition_control.enqueue([work], actor=Actor.OPERATOR, by="operator")
    promises.flight = ""
    ferry.work()
    sealed = ferry.work_reader.find_partition(PARTITION)
    promises.add("acquired", run_id=None if sealed is None else sealed.current_run_id)


def _export(ferry: Tileferry, promises: PromiseLog, path: Path) -> None:
    ferry.export(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    promises.add("exported", name=path.name, sha256=digest)


class SkippedSync(StrEnum):
    """A planted bug: nothing of this kind is made durable. The checks must notice it."""

    SEGMENTS = "segments"
    JOURNAL = "journal"
    RECORDER = "recorder"
    DIRECTORIES = "directories"
    RAW = "raw"


_FOLDERS = {
    SkippedSync.SEGMENTS: "/segments/",
    SkippedSync.JOURNAL: "/journal/",
    SkippedSync.RECORDER: "/fdr/",
    SkippedSync.RAW: "/raw/",
}


def plant_bug(skipped: SkippedSync) -> None:
    """Skip the system calls that make something durable, in this process."""
    file_sync, directory_sync = OpenFile.fdatasync, Directory.sync

    def sync_file(file: OpenFile) -> None:
        if _FOLDERS.get(skipped, "\0") not in str(file.path):
            file_sync(file)

    def sync_directory(directory: Directory) -> None:
        if skipped is not SkippedSync.DIRECTORIES:
            directory_sync(directory)

    OpenFile.fdatasync = sync_file  # type: ignore[method-assign,assignment]  # planted
    Directory.sync = sync_directory  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    if bug := os.environ.get("POWERLOSS_BUG"):
        plant_bug(SkippedSync(bug))
    disk, provider_url, promise_file = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    captures = promise_file.with_name("card")
    write_captures(captures, CAPTURES)
    with promise_file.open("w", encoding="utf-8") as file:
        work(Site(disk=disk, provider_url=provider_url), PromiseLog(file), captures)
