"""Runs: the queue's work items, their state machine, and the fair order among them."""

from tileferry.domain.runs.classification import (
    ERROR_CLASSES,
    EXPLANATION_CHARS_MAX,
    classify_error,
    explain,
)
from tileferry.domain.runs.gate import SourceGate
from tileferry.domain.runs.lease import lease_ended
from tileferry.domain.runs.order import eligible, fair_order, next_to_process
from tileferry.domain.runs.run import (
    ERROR_CODES,
    RUN_SHAPES,
    Run,
    RunId,
    RunKind,
    RunPriority,
    RunStatus,
    WorkerId,
    has_ended,
    is_due,
    is_permanent,
)
from tileferry.domain.runs.setbacks import (
    MAX_RESCUES,
    cancel,
    record_error,
    rescue,
    retry_now,
)
from tileferry.domain.runs.table import RUN_TRANSITIONS
from tileferry.domain.runs.transitions import claim, complete, renew, submit
from tileferry.domain.runs.verdict import Verdict, VerdictOutcome

__all__ = [
    "ERROR_CLASSES",
    "ERROR_CODES",
    "EXPLANATION_CHARS_MAX",
    "MAX_RESCUES",
    "RUN_SHAPES",
    "RUN_TRANSITIONS",
    "Run",
    "RunId",
    "RunKind",
    "RunPriority",
    "RunStatus",
    "SourceGate",
    "Verdict",
    "VerdictOutcome",
    "WorkerId",
    "cancel",
    "claim",
    "classify_error",
    "complete",
    "eligible",
    "explain",
    "fair_order",
    "has_ended",
    "is_due",
    "is_permanent",
    "lease_ended",
    "next_to_process",
    "record_error",
    "renew",
    "rescue",
    "retry_now",
    "submit",
]
