"""The raw sink: one raw partition for each run, immutable once it is sealed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import PurePath
from typing import NoReturn, Protocol

from attrs import frozen

from tileferry.domain.errors import InvalidStateError, InvalidValueError, StorageError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.validation import is_name

with import_on_call(globals()):  # for annotations
    from tileferry.application.ports.cache import CacheLock
    from tileferry.application.ports.clock import Clock
    from tileferry.application.ports.downloads import SpoolStore, TileDownloader
    from tileferry.application.ports.journal import JournalStore
    from tileferry.application.ports.progress import ProgressListener
    from tileferry.application.ports.tiles import TileCatalogue, TileStore
    from tileferry.domain.partitions import PartitionKey
    from tileferry.domain.partitions.manifest import (
        ManifestEntry,
        PartitionDamage,
        PartitionHeader,
        SealedPartition,
    )
    from tileferry.domain.runs import RunId
    from tileferry.domain.tiles import DownloadBatchReport
    from tileferry.domain.tiles.area import Area


class OpenPartition(Protocol):
    """A run's raw partition while it is written: a separate, locked cache with its journal."""

    @property
    def root(self) -> PurePath:
        """Its folder, for the request and for the free space of the disk."""
        ...

    @property
    def tile_store(self) -> TileStore:
        """Stores the bytes."""
        ...

    @property
    def tile_metadata_store(self) -> TileCatalogue:
        """Stores the tiles of the run's area, including those of its earlier attempts."""
        ...

    @property
    def journals(self) -> JournalStore:
        """Stores the progress."""
        ...

    @property
    def spools(self) -> SpoolStore:
        """Stores the listing."""
        ...

    @property
    def lock(self) -> CacheLock:
        """Held while the partition is open."""
        ...

    def seal(self, report: DownloadBatchReport, *, at: datetime) -> SealedPartition:
        """Write the manifest and close the partition permanently, durably and atomically.

        After a crash the partition is either open as before or completely sealed. Sealing it again
        returns the same result.
        """
        ...


class PartitionReader(Protocol):
    """Reads a sealed partition. A damaged manifest raises ``InvalidValueError``."""

    @property
    def header(self) -> PartitionHeader:
        """The header of its manifest."""
        ...

    def iter_entries(self) -> Iterator[ManifestEntry]:
        """Yield its tiles; reaching the end proves that the manifest is unchanged."""
        ...

    def read_tile(self, entry: ManifestEntry) -> bytes:
        """Return the bytes of a tile, verified by sha256."""
        ...

    def verify(self) -> Iterator[PartitionDamage]:
        """Read every byte that the manifest covers, and yield the damage."""
        ...


class RawFinder(Protocol):
    """Finds raw partitions, without reading tiles."""

    def find_newest(self, key: PartitionKey) -> SealedPartition | None:
        """Return the sealed raw partition of the newest run of a partition that has one."""
        ...


class RawSink(RawFinder, Protocol):
    """Stores raw partitions, and never deletes one."""

    def open(
        self, key: PartitionKey, run_id: RunId, area: Area, *, imagery_date: date | None = None
    ) -> AbstractContextManager[OpenPartition]:
        """Create or resume a run's raw partition; refuse a sealed one.

        ``imagery_date`` is recorded in the manifest, and the age of tiles is judged at that date.
        """
        ...

    def find(self, key: PartitionKey, run_id: RunId) -> SealedPartition | None:
        """Return a run's sealed partition, if any, without reading tiles."""
        ...

    def open_reader(self, sealed: SealedPartition) -> AbstractContextManager[PartitionReader]:
        """Open a sealed partition for reading; refuse it if it was replaced."""
        ...


class DownloaderFactory(Protocol):
    """Creates the downloader of an open raw partition."""

    def create(
        self, raw: OpenPartition, *, progress: ProgressListener, imagery_date: date | None = None
    ) -> TileDownloader:
        """Return a downloader of the imagery of a date that writes only to ``raw``."""
        ...


@frozen
class AsOfClock:
    """A clock whose time stops at the end of a day, to judge the age of that day's imagery."""

    clock: Clock
    day: date

    def now(self) -> float:
        """Return the time, at most the end of the day in UTC."""
        end = datetime.combine(self.day + timedelta(days=1), time.min, UTC)
        return min(self.clock.now(), end.timestamp())

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


NEVER_REPAIRED = "raw partitions are never repaired; start a new run of the partition"


def check_run_id(run_id: RunId) -> None:
    """Refuse a run id that is not a plain name."""
    if not is_name(run_id):
        raise InvalidValueError(field="run_id", value=run_id, problem="is not a plain name")


def format_manifest_name(run_id: RunId) -> str:
    """Return the name of a run's manifest in error messages."""
    return f"manifest of run {run_id}"


def refuse_sealed(path: PurePath) -> NoReturn:
    """Refuse to write to a sealed raw partition."""
    raise StorageError(
        action="open",
        path=str(path),
        problem="it is sealed",
        remedy="sealed raw partitions never change; start a new run",
    )


def refuse_other_area(run_id: RunId, area: Area) -> NoReturn:
    """Refuse to resume a run with another area: its raw partition would mix the two."""
    raise InvalidValueError(
        field="area",
        value=f"{area.bbox} at {area.zoom_levels}",
        problem=f"differs from the area that run {run_id} started with",
        remedy="start a new run for another area",
    )


def refuse_changed(sealed: SealedPartition) -> NoReturn:
    """Refuse to read a raw partition that changed after it was sealed."""
    raise InvalidStateError(
        subject=sealed.subject,
        problem=f"is missing or has changed since it was sealed (sha256 {sealed.manifest_sha256})",
        remedy=NEVER_REPAIRED,
    )
