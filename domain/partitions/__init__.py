"""Partitions: what the validator has decided about each, and who may ask for another try."""

from tileferry.domain.partitions.backfill import (
    BACKFILL_PARTITIONS_MAX,
    BackfillAction,
    BackfillLine,
    BackfillPlan,
    BackfillRequest,
    PartitionFingerprint,
    SkipReason,
)
from tileferry.domain.partitions.backfill_input import PLAN_BYTES_MAX, plan_from_json
from tileferry.domain.partitions.backfill_planning import Drift, drift, is_applied, plan_backfill
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
    GivenUp,
    TerminalityPolicy,
    TerminalReason,
    given_up,
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
from tileferry.domain.partitions.verdicts import after_run, apply_verdict, verdict_behind
from tileferry.domain.runs import Verdict, VerdictOutcome

__all__ = [
    "BACKFILL_PARTITIONS_MAX",
    "LARGE_RANGE",
    "PARTITION_SHAPES",
    "PARTITION_TRANSITIONS",
    "PLAN_BYTES_MAX",
    "BackfillAction",
    "BackfillLine",
    "BackfillPlan",
    "BackfillRequest",
    "Drift",
    "GivenUp",
    "Partition",
    "PartitionFingerprint",
    "PartitionKey",
    "PartitionStatus",
    "SkipReason",
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
    "drift",
    "enqueue",
    "given_up",
    "is_applied",
    "mark_terminal",
    "next_automatic_retry",
    "plan_backfill",
    "plan_from_json",
    "readable_run",
    "reject",
    "reprocess",
    "requeue",
    "terminal_reason",
    "verdict_behind",
]
