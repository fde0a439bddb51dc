"""What consumers read: the data of a success, and of nothing else."""

from attrs import frozen

from tileferry.application.ports.raw_partitions import RawSink, refuse_changed
from tileferry.application.ports.work import WorkReader
from tileferry.domain.partitions import PartitionKey, readable_run
from tileferry.domain.partitions.manifest import SealedPartition


@frozen(kw_only=True)
class PartitionReading:
    """The consumers' way to raw partitions; it starts no retry, and changes nothing."""

    books: WorkReader
    sink: RawSink

    def readable(self, key: PartitionKey) -> SealedPartition | None:
        """Return the raw partition that speaks for ``key``; ``sink.reader`` opens it.

        ``None`` is a gap: it is unknown, pending or failed, and a consumer takes it as that. What
        the books vouch for and the sink does not have as it was sealed is refused.
        """
        partition = self.books.find_partition(key)
        run_id = None if partition is None else readable_run(partition)
        noted = None if run_id is None else self.books.find_raw(run_id)
        if noted is not None and self.sink.find(key, noted.run_id) != noted:
            refuse_changed(noted)
        return noted
