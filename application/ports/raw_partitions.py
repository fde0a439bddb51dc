"""The raw sink: what runs bring, one raw partition a run, never changed once it is sealed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import PurePath
from typing import NoReturn, Protocol

from tileferry.application.ports.cache import CacheLock
from tileferry.application.ports.downloads import SpoolStore, TileDownloader
from tileferry.application.ports.journal import JournalStore
from tileferry.application.ports.progress import ProgressListener
from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.errors import InvalidStateError, InvalidValueError, StorageError
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
from tileferry.domain.validation import is_name


class OpenPartition(Protocol):
    """A run's raw partition while it is written: a cache of its own, locked, with its journal."""

    @property
    def root(self) -> PurePath:
        """Where it is, for the request and for the disk's free space."""
        ...

    @property
    def tile_store(self) -> TileStore:
        """Takes the bytes."""
        ...

    @property
    def tile_metadata_store(self) -> TileCatalogue:
        """Takes the tiles of the run's area, and knows those of its earlier tries."""
        ...

    @property
    def journals(self) -> JournalStore:
        """Keeps the progress."""
        ...

    @property
    def spools(self) -> SpoolStore:
        """Takes the listing."""
        ...

    @property
    def lock(self) -> CacheLock:
        """Is held while the partition is open."""
        ...

    def seal(self, report: DownloadBatchReport, *, at: datetime) -> SealedPartition:
        """Write the manifest and close the partition for good, durably; nothing less happens.

        Until this returns the partition is either as open as before or wholly sealed, whatever
        crashes. To seal it again gives the same.
        """
        ...


class PartitionReader(Protocol):
    """Reads a sealed partition. A manifest that is damaged is an ``InvalidValueError``."""

    @property
    def header(self) -> PartitionHeader:
        """What its manifest begins with."""
        ...

    def iter_entries(self) -> Iterator[ManifestEntry]:
        """Yield its tiles; at the end it is known that the manifest is as it was sealed."""
        ...

    def read_tile(self, entry: ManifestEntry) -> bytes:
        """Return the bytes of a tile, checked by their sha256."""
        ...

    def verify(self) -> Iterator[PartitionDamage]:
        """Read every byte that the manifest vouches for, and yield what is not as it was."""
        ...


class RawSink(Protocol):
    """Keeps raw partitions, and never lets go of one."""

    def open(
        self, key: PartitionKey, run_id: RunId, area: Area
    ) -> AbstractContextManager[OpenPartition]:
        """Begin a run's raw partition, or go on with what the run left; refuse a sealed one."""
        ...

    def find(self, key: PartitionKey, run_id: RunId) -> SealedPartition | None:
        """Return a run's sealed partition, if there is one; this looks at no tile."""
        ...

    def open_reader(self, sealed: SealedPartition) -> AbstractContextManager[PartitionReader]:
        """Open a sealed partition for reading; refuse it where another was put in its place."""
        ...


class DownloaderFactory(Protocol):
    """Makes the downloader for an open raw partition."""

    def create(self, raw: OpenPartition, *, progress: ProgressListener) -> TileDownloader:
        """Return what downloads into ``raw``, and nowhere else."""
        ...


NEVER_REPAIRED = "raw partitions are never repaired; start a new run of the partition"


def check_run_id(run_id: RunId) -> None:
    """Refuse a run id that is not a plain name."""
    if not is_name(run_id):
        raise InvalidValueError(field="run_id", value=run_id, problem="is not a plain name")


def format_manifest_name(run_id: RunId) -> str:
    """How errors call a run's manifest."""
    return f"manifest of run {run_id}"


def refuse_sealed(path: PurePath) -> NoReturn:
    """Refuse to write to what is sealed."""
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
