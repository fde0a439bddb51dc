"""What an operator has to show before partitions are tried again: the count, and raw data."""

from tileferry.domain.errors import ConfirmationNeededError, NoRawPartitionError
from tileferry.domain.partitions.partition import Partition

LARGE_RANGE = 10
"""From so many partitions on, the operator types how many are meant."""


def check_confirmed(count: int, confirmed: int | None) -> None:
    """Refuse an action on ``count`` partitions that nobody has confirmed by that number.

    A few need no confirmation. Whoever gives a number expects it, so a wrong one is refused however
    few there are: the range is not the one that was thought of.
    """
    needed = count >= LARGE_RANGE or confirmed is not None
    if needed and confirmed != count:
        raise ConfirmationNeededError(count=count, confirmed=confirmed)


def check_raw_partition(partition: Partition, *, has_raw: bool) -> None:
    """Refuse an operator's retry where the raw sink has no sealed partition of the newest run.

    A retry repeats an extraction that took place. A run that was abandoned before it sealed
    anything (a refused key, a wrong area) would break in the same way again, and nobody would see
    why from its raw data: it has none. So not even the operator's reason opens this rail. The way
    on is a backfill of that date: there the operator sees the partition's state, decides on a new
    extraction with its area, and gets a new run. A backfill is therefore not held to this rule, nor
    is the scheduler, who only retries what the validator has judged.
    """
    if not has_raw:
        raise NoRawPartitionError(partition=partition.subject, run_id=partition.last_run_id)
