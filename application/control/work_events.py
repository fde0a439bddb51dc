"""Which changes of runs and partitions the audit tells of, and how."""

from collections.abc import Sequence

from tileferry.domain.audit import StateChanged
from tileferry.domain.change import Change
from tileferry.domain.partitions import Partition
from tileferry.domain.runs import Run


def run_event(change: Change[Run], by: str | None) -> StateChanged:
    """Return the event of a run's change."""
    return StateChanged.of(change, correlation_id=change.after.run_id, additional_context=_whom(by))


def partition_event(change: Change[Partition], by: str | None) -> StateChanged:
    """Return the event of a partition's change; it is found by its run as well."""
    return StateChanged.of(
        change, correlation_id=change.after.last_run_id, additional_context=_whom(by)
    )


def in_order(
    runs: Sequence[Change[Run]], partitions: Sequence[Change[Partition]], by: str | None
) -> list[StateChanged]:
    """Return the events of one unit: what became of runs, then what that made of partitions."""
    return [
        *(run_event(change, by) for change in runs),
        *(partition_event(change, by) for change in partitions),
    ]


def _whom(by: str | None) -> dict[str, str] | None:
    return None if by is None else {"by": by}
