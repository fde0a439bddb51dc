"""What is on the disk, what the operator asks for, and the log of what was promised."""

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, TextIO

from attrs import define, field, frozen
from support.provider import API_KEY

from tileferry.adapters.filesystem.audit_outbox import FileAuditOutbox
from tileferry.application.ports.fdr import FdrRecord
from tileferry.application.ports.progress import (
    BatchAnswered,
    ProgressEvent,
    RunFinished,
    TilesStored,
)
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.tiles import BBox, DownloadRequest, SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.entrypoints.config import (
    C6Config,
    C11Config,
    Config,
    PartitionsConfig,
    WorkerConfig,
)

_SECTOR = SectorClass.STABLE_REAR
AREAS = {
    "F1": Area(bbox=BBox.parse("36.20,49.90,36.30,49.95"), zoom_levels=[15], sector_class=_SECTOR),
    "F2": Area(bbox=BBox.parse("36.40,49.90,36.50,49.95"), zoom_levels=[15], sector_class=_SECTOR),
    "F3": Area(bbox=BBox.parse("36.60,49.90,36.70,49.95"), zoom_levels=[15], sector_class=_SECTOR),
}
CAPTURED = "C1"
CAPTURES = 24
POISONED = "16/39003/22000"
"""A captured tile that the provider rejects each time, until it is given up."""
PARTITIONS = {
    PartitionKey(
        source="satellite", customer_id="acme", query_name=name, logical_date=date(2026, 10, 1)
    ): Area(bbox=BBox.parse(bbox), zoom_levels=[15], sector_class=_SECTOR)
    for name, bbox in {
        "north": "36.20,49.93,36.24,49.95",
        "south": "36.20,49.90,36.24,49.92",
        "west": "36.10,49.90,36.14,49.92",
    }.items()
}
BUDGET_BYTES = 3_200_000
"""Less than the three areas together need, so that the third evicts tiles."""
LEASE_S = 3.0
"""The lease of a run in the workload, whose workers are killed."""
OUTBOX_SEGMENT_BYTES = 1_000
RECORDER_FILES = 3
RECORDER_PAYLOAD = "x" * 6_000
"""Three records fill a file of the recorder."""


@frozen(kw_only=True)
class Site:
    """Where the product keeps its data, and its provider."""

    disk: Path
    provider_url: str
    lease_s: float = 60.0

    def create_config(self) -> Config:
        return Config(
            data_dir=self.disk / "postgres",
            c6=C6Config(budget_bytes=BUDGET_BYTES, free_space_reserve_bytes=0),
            c11=C11Config(
                cache_root=self.cache,
                satellite_provider_url=self.provider_url,
                service_api_key=API_KEY,
                backoff_base_s=0.0,
                upload_batch_tiles=5,
            ),
            partitions=PartitionsConfig(raw_root=self.disk / "raw"),
            worker=WorkerConfig(
                lease_s=self.lease_s,
                poll_s=0.05,
                sweep_s=0.2,
                idle_patience_s=3.0,
                initial_backoff_s=0.0,
            ),
        )

    @property
    def cache(self) -> Path:
        return self.disk / "cache"

    @property
    def exports(self) -> Path:
        return self.disk / "exports"

    @property
    def trash(self) -> Path:
        """Exists if removed folders are moved there."""
        return self.disk / "trash"

    @property
    def recorder(self) -> Path:
        """The root of a recorder with small files, beside that of the cache."""
        return self.disk / "recorder"

    def create_request(self, flight: str) -> DownloadRequest:
        return DownloadRequest(flight_id=flight, area=AREAS[flight], cache_root=self.cache)


@frozen(kw_only=True)
class Promise:
    """Something that was reported as done, or that may begin from now on, and when."""

    at_s: float
    what: str
    facts: dict[str, Any]


def read_promises(path: Path) -> list[Promise]:
    return [Promise(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


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
        match event:
            case TilesStored(tiles=tiles) if tiles and self.flight:
                self.add("stored", flight=self.flight, tiles=tiles)
            case BatchAnswered(answers=answers):
                done = {each.tile_id: each.status.acknowledged for each in answers}
                self.add(
                    "answered",
                    acknowledged=[str(tile) for tile, is_done in done.items() if is_done],
                    rejected=[str(tile) for tile, is_done in done.items() if not is_done],
                )
            case RunFinished(run_id=run_id, status=status):
                self.add("run", run_id=run_id, status=status.value)
            case _:
                pass


def open_outbox(site: Site) -> FileAuditOutbox:
    """Return an outbox of audit events, with small files."""
    return FileAuditOutbox(
        root=site.cache, name="powerloss", sink="powerloss", segment_bytes=OUTBOX_SEGMENT_BYTES
    )


def read_number(record: FdrRecord) -> int:
    """Return the number of a record that the workload made."""
    number = record.payload["number"]
    assert isinstance(number, int)
    return number


def compute_digest(path: Path) -> str:
    """Return the sha256 of a file, or of the names and content of all files in a folder."""
    digest = hashlib.sha256()
    for file in _iter_files(path):
        digest.update(f"{file.relative_to(path.parent)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _iter_files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
