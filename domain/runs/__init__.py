"""Runs: the queue's work items, their state machine, and the fair order among them."""

from tileferry.domain.runs.attempts import (
    AttemptOutcome,
    RunAttempt,
    ended_attempt,
    newest_attempt,
)
from tileferry.domain.runs.classification import (
    ERROR_CLASSES,
    EXPLANATION_CHARS_MAX,
    classify_error,
    explain,
    is_for_its_source,
)
from tileferry.domain.runs.gate import SourceGate
from tileferry.domain.runs.lease import lease_ended
from tileferry.domain.runs.order import batch_of, eligible, fair_order
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
    restored,
)
from tileferry.domain.runs.setbacks import (
    MAX_RESCUES,
    cancel,
    record_error,
    release,
    rescue,
    retry_now,
)
from tileferry.domain.runs.table import RUN_TRANSITIONS
from tileferry.domain.runs.transitions import claim, complete, renew, submit
from tileferry.domain.runs.verdict import Verdict, VerdictOutcome
from tileferry.domain.runs.waking import QUEUE_BUDGET, WAKE_MAX, waking

__all__ = [
    "ERROR_CLASSES",
    "ERROR_CODES",
    "EXPLANATION_CHARS_MAX",
    "MAX_RESCUES",
    "QUEUE_BUDGET",
    "RUN_SHAPES",
    "RUN_TRANSITIONS",
    "WAKE_MAX",
    "AttemptOutcome",
    "Run",
    "RunAttempt",
    "RunId",
    "RunKind",
    "RunPriority",
    "RunStatus",
    "SourceGate",
    "Verdict",
    "VerdictOutcome",
    "WorkerId",
    "batch_of",
    "cancel",
    "claim",
    "classify_error",
    "complete",
    "eligible",
    "ended_attempt",
    "explain",
    "fair_order",
    "has_ended",
    "is_due",
    "is_for_its_source",
    "is_permanent",
    "lease_ended",
    "newest_attempt",
    "record_error",
    "release",
    "renew",
    "rescue",
    "restored",
    "retry_now",
    "submit",
    "waking",
]
