"""What consumers read: the data of a success, and of nothing else."""

from contextlib import AbstractContextManager

from attrs import frozen

from tileferry.application.ports.raw_partitions import PartitionReader, RawSink, refuse_changed
from tileferry.application.ports.work import WorkReader
from tileferry.domain.partitions import PartitionKey, readable_run
from tileferry.domain.partitions.manifest import SealedPartition


@frozen(kw_only=True)
class PartitionReading:
    """The consumers' way to raw partitions; it starts no retry, and changes nothing."""

    books: WorkReader
    sink: RawSink

    def open(self, key: PartitionKey) -> AbstractContextManager[PartitionReader] | None:
        """Return a block in which the raw partition that speaks for ``key`` can be read."""
        sealed = self.readable(key)
        return None if sealed is None else self.sink.reader(sealed)

    def readable(self, key: PartitionKey) -> SealedPartition | None:
        """Return the raw partition that speaks for ``key``.

        ``None`` is a gap: it is unknown, pending or failed, and a consumer takes it as that. What
        the books vouch for and the sink does not have as it was sealed is refused.
        """
        partition = self.books.find_partition(key)
        run_id = None if partition is None else readable_run(partition)
        noted = None if run_id is None else self.books.find_raw(run_id)
        if noted is not None and self.sink.find(key, noted.run_id) != noted:
            refuse_changed(noted)
        return noted
