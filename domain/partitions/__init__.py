"""Partitions: what the validator has decided about each, and who may ask for another try."""

from tileferry.domain.partitions.confirmation import (
    LARGE_RANGE,
    check_confirmed,
    check_raw_partition,
)
from tileferry.domain.partitions.partition import (
    PARTITION_SHAPES,
    Partition,
    PartitionKey,
    PartitionStatus,
    readable_run,
)
from tileferry.domain.partitions.table import PARTITION_TRANSITIONS
from tileferry.domain.partitions.terminality import (
    TerminalityPolicy,
    TerminalReason,
    next_automatic_retry,
    terminal_reason,
)
from tileferry.domain.partitions.transitions import (
    abandon,
    accept,
    enqueue,
    mark_terminal,
    reject,
    reprocess,
    requeue,
)
from tileferry.domain.partitions.verdicts import after_run, apply_verdict
from tileferry.domain.runs import Verdict, VerdictOutcome

__all__ = [
    "LARGE_RANGE",
    "PARTITION_SHAPES",
    "PARTITION_TRANSITIONS",
    "Partition",
    "PartitionKey",
    "PartitionStatus",
    "TerminalReason",
    "TerminalityPolicy",
    "Verdict",
    "VerdictOutcome",
    "abandon",
    "accept",
    "after_run",
    "apply_verdict",
    "check_confirmed",
    "check_raw_partition",
    "enqueue",
    "mark_terminal",
    "next_automatic_retry",
    "readable_run",
    "reject",
    "reprocess",
    "requeue",
    "terminal_reason",
]
