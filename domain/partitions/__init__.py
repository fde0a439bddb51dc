"""Partitions: their state machine, retry rules, manifests, validation and backfills."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.domain.partitions.backfill import (
        BACKFILL_PARTITIONS_MAX,
        PLAN_BYTES_MAX,
        BackfillAction,
        BackfillLine,
        BackfillPlan,
        BackfillRequest,
        PartitionFingerprint,
        SkipReason,
        parse_plan,
    )
    from tileferry.domain.partitions.backfill_planning import (
        PartitionDrift,
        find_drift,
        is_applied,
        plan_backfill,
    )
    from tileferry.domain.partitions.partition import (
        PARTITION_STATUS_FIELDS,
        Partition,
        PartitionKey,
        PartitionStatus,
        get_readable_run,
    )
    from tileferry.domain.partitions.retry_rules import (
        LARGE_RANGE,
        PartitionGiveUpReason,
        TerminalityPolicy,
        TerminalReason,
        check_confirmation,
        check_raw_partition,
        find_give_up_reason,
        find_next_automatic_retry,
        find_terminal_reason,
    )
    from tileferry.domain.partitions.transitions import (
        PARTITION_TRANSITIONS,
        abandon,
        accept,
        apply_run_end,
        apply_verdict,
        enqueue,
        find_verdict,
        mark_terminal,
        reject,
        reprocess,
        requeue,
    )
    from tileferry.domain.runs import Verdict, VerdictOutcome

__all__ = [
    "BACKFILL_PARTITIONS_MAX",
    "LARGE_RANGE",
    "PARTITION_STATUS_FIELDS",
    "PARTITION_TRANSITIONS",
    "PLAN_BYTES_MAX",
    "BackfillAction",
    "BackfillLine",
    "BackfillPlan",
    "BackfillRequest",
    "Partition",
    "PartitionDrift",
    "PartitionFingerprint",
    "PartitionGiveUpReason",
    "PartitionKey",
    "PartitionStatus",
    "SkipReason",
    "TerminalReason",
    "TerminalityPolicy",
    "Verdict",
    "VerdictOutcome",
    "abandon",
    "accept",
    "apply_run_end",
    "apply_verdict",
    "check_confirmation",
    "check_raw_partition",
    "enqueue",
    "find_drift",
    "find_give_up_reason",
    "find_next_automatic_retry",
    "find_terminal_reason",
    "find_verdict",
    "get_readable_run",
    "is_applied",
    "mark_terminal",
    "parse_plan",
    "plan_backfill",
    "reject",
    "reprocess",
    "requeue",
]
