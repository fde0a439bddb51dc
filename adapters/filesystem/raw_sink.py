"""The raw sink: ``<root>/<source>/<customer>/<query>/<date>/<run>/``, one directory a run.

Every part of that path is a plain name of ours, opened one below the other without following links.
A run has its directory when it is sealed, and not before (see ``raw_open``).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging import Logger
from pathlib import Path

from attrs import define, field

from tileferry.adapters.filesystem.files import Directory, FileCalls
from tileferry.adapters.filesystem.raw_open import FileOpenPartition, opened
from tileferry.adapters.filesystem.raw_reader import (
    SEGMENTS,
    STORE,
    FilePartitionReader,
    open_manifest,
    read_ends,
)
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.raw_partitions import check_run_id, refuse_changed
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import FreshnessRule
from tileferry.domain.tiles.area import Area


@define(kw_only=True, eq=False)
class FileRawSink:
    """Keeps raw partitions on a disk."""

    root: Path
    clock: Clock
    logger: Logger
    freshness: FreshnessRule = field(factory=FreshnessRule)
    calls: FileCalls = field(factory=FileCalls)

    @contextmanager
    def open(self, key: PartitionKey, run_id: RunId, area: Area) -> Iterator[FileOpenPartition]:
        """Begin a run's raw partition, or go on with what the run left; refuse a sealed one."""
        check_run_id(run_id)
        with ExitStack() as stack:
            here = stack.enter_context(Directory.open_root(self.root, self.calls))
            for name in _path_of(key):
                here = stack.enter_context(here.subdirectory(name))
            partition = opened(
                here,
                key,
                run_id,
                area,
                clock=self.clock,
                freshness=self.freshness,
                logger=self.logger,
                calls=self.calls,
            )
            yield stack.enter_context(partition)

    def find(self, key: PartitionKey, run_id: RunId) -> SealedPartition | None:
        """Return a run's sealed partition, if there is one."""
        check_run_id(run_id)
        with self._found(*_path_of(key)) as runs, _below(runs, run_id) as directory:
            if runs is None or directory is None:
                return None
            # Who sealed it may have died before its name was durable.
            runs.sync()
            return read_ends(directory, key, run_id)

    @contextmanager
    def reader(self, sealed: SealedPartition) -> Iterator[FilePartitionReader]:
        """Open a sealed partition for reading; refuse it where another was put in its place."""
        key, run_id = sealed.key, sealed.run_id
        with (
            self._found(*_path_of(key), run_id) as directory,
            _below(directory, STORE, SEGMENTS) as segments,
        ):
            if directory is None or segments is None or read_ends(directory, key, run_id) != sealed:
                refuse_changed(sealed)
            with open_manifest(directory, run_id) as manifest:
                reader = FilePartitionReader.of(sealed, manifest, segments)
                try:
                    yield reader
                finally:
                    reader.close()

    @contextmanager
    def _found(self, *names: str) -> Iterator[Directory | None]:
        """Open a directory to read, if there is one; nothing on the way is made or changed."""
        if not self.root.exists():
            yield None
            return
        with Directory.open_root(self.root, self.calls) as root, _below(root, *names) as found:
            yield found


@contextmanager
def _below(directory: Directory | None, *names: str) -> Iterator[Directory | None]:
    with ExitStack() as stack:
        for name in names:
            directory = None if directory is None else directory.find_subdirectory(name)
            if directory is not None:
                stack.enter_context(directory)
        yield directory


def _path_of(key: PartitionKey) -> tuple[str, ...]:
    return key.source, key.customer_id, key.query_name, key.logical_date.isoformat()
