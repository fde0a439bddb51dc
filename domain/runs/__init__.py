"""Runs: queued work, its state machine, error classes, attempts and queue order."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.domain.retry.budget import QUEUE_BUDGET
    from tileferry.domain.runs.attempts import (
        AttemptOutcome,
        RunAttempt,
        build_ended_attempt,
        build_newest_attempt,
    )
    from tileferry.domain.runs.classification import (
        ERROR_CLASSES,
        EXPLANATION_CHARS_MAX,
        classify_error,
        explain_error,
        is_source_wide,
    )
    from tileferry.domain.runs.failures import (
        MAX_RESCUES,
        cancel,
        record_error,
        release,
        rescue,
        retry_now,
    )
    from tileferry.domain.runs.progress import RunProgress
    from tileferry.domain.runs.queue import (
        ADMIT_MAX,
        SourceGate,
        admit_due_retries,
        compute_wait_s,
        get_queue_key,
        select_eligible,
        take_batch,
    )
    from tileferry.domain.runs.run import (
        ERROR_CODES,
        RUN_STATUS_FIELDS,
        Run,
        RunId,
        RunKind,
        RunPriority,
        RunStatus,
        Verdict,
        VerdictOutcome,
        WorkerId,
        has_ended,
        is_due,
        is_permanent,
        restore_run,
    )
    from tileferry.domain.runs.transitions import (
        RUN_TRANSITIONS,
        claim,
        complete,
        is_lease_expired,
        renew,
        submit,
    )

__all__ = [
    "ADMIT_MAX",
    "ERROR_CLASSES",
    "ERROR_CODES",
    "EXPLANATION_CHARS_MAX",
    "MAX_RESCUES",
    "QUEUE_BUDGET",
    "RUN_STATUS_FIELDS",
    "RUN_TRANSITIONS",
    "AttemptOutcome",
    "Run",
    "RunAttempt",
    "RunId",
    "RunKind",
    "RunPriority",
    "RunProgress",
    "RunStatus",
    "SourceGate",
    "Verdict",
    "VerdictOutcome",
    "WorkerId",
    "admit_due_retries",
    "build_ended_attempt",
    "build_newest_attempt",
    "cancel",
    "claim",
    "classify_error",
    "complete",
    "compute_wait_s",
    "explain_error",
    "get_queue_key",
    "has_ended",
    "is_due",
    "is_lease_expired",
    "is_permanent",
    "is_source_wide",
    "record_error",
    "release",
    "renew",
    "rescue",
    "restore_run",
    "retry_now",
    "select_eligible",
    "submit",
    "take_batch",
]
