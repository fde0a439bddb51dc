"""Raw partitions on disk: writing, sealing and finding them.

Until a run is sealed, it has two hidden directories. ``.<run>.work`` contains the lock, the journal
and the rows. ``.<run>.open`` contains the tiles: it gets the manifest, is made read-only, and is
then renamed to ``<run>``. That rename is the seal. Before it, no directory has the run's name, and
a run resumes from the hidden directories after a crash.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date, datetime
from logging import Logger
from pathlib import Path

from attrs import define, field

from tileferry.adapters.filesystem.atomic_files import replace_file
from tileferry.adapters.filesystem.cache_directory import FileCacheLock
from tileferry.adapters.filesystem.files import Directory, FileCalls
from tileferry.adapters.filesystem.journal.store import FileJournalStore
from tileferry.adapters.filesystem.raw.metadata import RawRows, RawTileMetadata
from tileferry.adapters.filesystem.raw.reader import (
    MANIFEST,
    SEGMENTS,
    STORE,
    FilePartitionReader,
    open_manifest,
    read_sealed_partition,
)
from tileferry.adapters.filesystem.segments.format import parse_segment_number
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.filesystem.spool import FileSpoolStore
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.raw_partitions import (
    AsOfClock,
    check_run_id,
    refuse_changed,
    refuse_other_area,
    refuse_sealed,
)
from tileferry.domain.canonical import canonical_json
from tileferry.domain.errors import StorageError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import PartitionHeader, SealedPartition
from tileferry.domain.partitions.manifest_format import format_manifest
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import DownloadBatchReport, FreshnessRule
from tileferry.domain.tiles.area import Area, area_to_json
from tileferry.domain.tiles.limits import SHAPE_CHARS_MAX

_PLAN = "partition.json"
_PLAN_BYTES_MAX = 4_096 + SHAPE_CHARS_MAX
_TEMPORARY = f"{MANIFEST}.tmp"
_BUFFER_BYTES = 64 * 1024


@define(kw_only=True, eq=False)
class FileOpenPartition:
    """A run's raw partition, open for writing; ``open_partition`` creates and closes it."""

    root: Path
    tile_store: SegmentTileStore
    tile_metadata_store: RawTileMetadata
    journals: FileJournalStore
    spools: FileSpoolStore
    lock: FileCacheLock
    _key: PartitionKey
    _run_id: RunId
    _area: Area
    _imagery_date: date | None
    _runs: Directory
    _content: Directory
    _rows: RawRows
    _sealed: SealedPartition | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def is_sealed(self) -> bool:
        return self._sealed is not None

    def seal(self, report: DownloadBatchReport, *, at: datetime) -> SealedPartition:
        """Write the manifest, make everything read-only, and rename the directory to the run's
        name.
        """
        if self._sealed is None:
            self.tile_store.flush()
            self.tile_metadata_store.flush()
            self.close()
            self._write_manifest(
                PartitionHeader(
                    key=self._key,
                    run_id=self._run_id,
                    area=self._area,
                    tiles_listed=report.tiles_requested,
                    tally=report.tally,
                    sealed_at=at.astimezone(UTC),
                    imagery_date=self._imagery_date,
                )
            )
            sealed = read_sealed_partition(self._content, self._key, self._run_id)
            self._close_to_writers()
            self._runs.rename(open_name(self._run_id), self._run_id)
            self._runs.sync()
            self._sealed = sealed
        return self._sealed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._rows.close()
            self.tile_store.close()

    def _write_manifest(self, header: PartitionHeader) -> None:
        with self._content.create_file(_TEMPORARY) as file:
            buffer = bytearray()
            for line in format_manifest(header, self._rows.entries()):
                buffer += line
                if len(buffer) >= _BUFFER_BYTES:
                    file.write_all(bytes(buffer))
                    buffer.clear()
            file.write_all(bytes(buffer))
            file.fdatasync()
        self._content.rename(_TEMPORARY, MANIFEST)
        self._content.sync()

    def _close_to_writers(self) -> None:
        """Make every file read-only, then every directory, innermost first."""
        with (
            self._content.subdirectory(STORE) as store,
            store.subdirectory(SEGMENTS) as segments,
        ):
            for directory, expected in (
                (segments, {name for name in segments.names() if parse_segment_number(name)}),
                (store, {SEGMENTS}),
                (self._content, {STORE, MANIFEST}),
            ):
                _check_names(directory, expected)
                for name in expected - {STORE, SEGMENTS}:
                    file = directory.find_file(name)
                    if file is not None:
                        with file:
                            file.seal()
                directory.seal()


@contextmanager
def open_partition(
    runs: Directory,
    key: PartitionKey,
    run_id: RunId,
    area: Area,
    *,
    imagery_date: date | None,
    clock: Clock,
    freshness: FreshnessRule,
    logger: Logger,
    calls: FileCalls,
) -> Iterator[FileOpenPartition]:
    """Open a run's raw partition in ``runs``, the directory of its partition."""
    with ExitStack() as stack:
        work = stack.enter_context(runs.subdirectory(work_name(run_id)))
        lock = FileCacheLock(root=work.path, calls=calls)
        lock.acquire()
        stack.callback(lock.release)
        _sweep(runs)
        if run_id in runs.names():
            refuse_sealed(runs.path / run_id)
        _check_plan(work, key, run_id, area)
        content = stack.enter_context(runs.subdirectory(open_name(run_id)))
        for name in {MANIFEST, _TEMPORARY} & set(content.names()):
            content.unlink(name)  # left by an incomplete seal
        rows = RawRows(
            directory=work, coverage=area.coverage, segment_sizes=_segment_sizes(content)
        )
        rows.load(logger)
        stack.callback(rows.close)
        metadata = RawTileMetadata(
            rows=rows, run_id=run_id, area=area, clock=clock, freshness=freshness
        )
        store = SegmentTileStore(root=content.path, index=metadata, calls=calls)
        partition = FileOpenPartition(
            root=work.path,
            tile_store=store,
            tile_metadata_store=metadata,
            journals=FileJournalStore(root=work.path, logger=logger, calls=calls),
            spools=FileSpoolStore(root=work.path, calls=calls),
            lock=lock,
            key=key,
            run_id=run_id,
            area=area,
            imagery_date=imagery_date,
            runs=runs,
            content=content,
            rows=rows,
        )
        stack.callback(partition.close)
        try:
            yield partition
        finally:
            if partition.is_sealed:
                _remove(work.path)


def work_name(run_id: RunId) -> str:
    """Return the name of the working directory, which is removed after the seal."""
    return f".{run_id}.work"


def open_name(run_id: RunId) -> str:
    """Return the name of a run's directory before the seal."""
    return f".{run_id}.open"


def _check_plan(work: Directory, key: PartitionKey, run_id: RunId, area: Area) -> None:
    """Record the run's partition and area; reject a resume with a different area."""
    plan = canonical_json({"partition": str(key), "run_id": run_id, **area_to_json(area)})
    file = work.find_file(_PLAN)
    if file is None:
        replace_file(work, _PLAN, plan)
        return
    with file:
        found = file.pread(_PLAN_BYTES_MAX, 0)
    if found != plan:
        refuse_other_area(run_id, area)


def _segment_sizes(content: Directory) -> dict[int, int]:
    sizes = {}
    with content.subdirectory(STORE) as store, store.subdirectory(SEGMENTS) as segments:
        for name in segments.names():
            number, file = parse_segment_number(name), segments.find_file(name)
            if number is not None and file is not None:
                with file:
                    sizes[number] = file.size()
    return sizes


def _check_names(directory: Directory, expected: set[str]) -> None:
    strangers = set(directory.names()) - expected
    if strangers:
        raise StorageError(
            action="seal",
            path=str(directory.path / min(strangers)),
            problem="unexpected file",
            remedy="find out who created it, remove it, then re-run",
        )


def _sweep(runs: Directory) -> None:
    """Remove working directories that a crash left just after a seal."""
    names = set(runs.names())
    for run_id in map(RunId, names):
        if work_name(run_id) in names:
            _remove(runs.path / work_name(run_id))


def _remove(folder: Path) -> None:
    """Remove a directory that is no longer needed; ignore errors, as remains are harmless."""
    with suppress(OSError):  # raised despite ignore_errors if a close fails
        shutil.rmtree(folder, ignore_errors=True)


@define(kw_only=True, eq=False)
class FileRawSink:
    """Stores raw partitions on disk."""

    root: Path
    clock: Clock
    logger: Logger
    freshness: FreshnessRule = field(factory=FreshnessRule)
    calls: FileCalls = field(factory=FileCalls)

    @contextmanager
    def open(
        self, key: PartitionKey, run_id: RunId, area: Area, *, imagery_date: date | None = None
    ) -> Iterator[FileOpenPartition]:
        """Start or resume a run's raw partition; reject a sealed one."""
        check_run_id(run_id)
        with ExitStack() as stack:
            here = stack.enter_context(Directory.open_root(self.root, self.calls))
            for name in _partition_path(key):
                here = stack.enter_context(here.subdirectory(name))
            partition = open_partition(
                here,
                key,
                run_id,
                area,
                imagery_date=imagery_date,
                clock=self.clock if imagery_date is None else AsOfClock(self.clock, imagery_date),
                freshness=self.freshness,
                logger=self.logger,
                calls=self.calls,
            )
            yield stack.enter_context(partition)

    def find(self, key: PartitionKey, run_id: RunId) -> SealedPartition | None:
        """Return a run's sealed partition, if it exists."""
        check_run_id(run_id)
        with (
            self._find_directory(*_partition_path(key)) as runs,
            _open_below(runs, run_id) as directory,
        ):
            if runs is None or directory is None:
                return None
            # The process that sealed it may have crashed before the new name was durable.
            runs.sync()
            return read_sealed_partition(directory, key, run_id)

    def find_newest(self, key: PartitionKey) -> SealedPartition | None:
        """Return the sealed raw partition of the newest run that has one."""
        with self._find_directory(*_partition_path(key)) as runs:
            names = [] if runs is None else runs.names()
        found = [self.find(key, RunId(name)) for name in names if not name.startswith(".")]
        sealed = [one for one in found if one is not None]
        return max(sealed, key=lambda one: (one.sealed_at, one.run_id), default=None)

    @contextmanager
    def open_reader(self, sealed: SealedPartition) -> Iterator[FilePartitionReader]:
        """Open a sealed partition for reading; fail if it has been replaced by another."""
        key, run_id = sealed.key, sealed.run_id
        with (
            self._find_directory(*_partition_path(key), run_id) as directory,
            _open_below(directory, STORE, SEGMENTS) as segments,
        ):
            if (
                directory is None
                or segments is None
                or read_sealed_partition(directory, key, run_id) != sealed
            ):
                refuse_changed(sealed)
            with open_manifest(directory, run_id) as manifest:
                reader = FilePartitionReader.from_open_files(sealed, manifest, segments)
                try:
                    yield reader
                finally:
                    reader.close()

    @contextmanager
    def _find_directory(self, *names: str) -> Iterator[Directory | None]:
        """Open a directory for reading, if it exists; create and change nothing."""
        if not self.root.exists():
            yield None
            return
        with Directory.open_root(self.root, self.calls) as root, _open_below(root, *names) as found:
            yield found


@contextmanager
def _open_below(directory: Directory | None, *names: str) -> Iterator[Directory | None]:
    with ExitStack() as stack:
        for name in names:
            directory = None if directory is None else directory.find_subdirectory(name)
            if directory is not None:
                stack.enter_context(directory)
        yield directory


def _partition_path(key: PartitionKey) -> tuple[str, ...]:
    return key.source, key.customer_id, key.query_name, key.logical_date.isoformat()
