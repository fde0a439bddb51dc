"""Reassembles retried calls from their audit events.

The events of a call share a context, and each failure continues the numbers of the decision before
it. A success event has no key; it belongs to the call of its context with the same number of
failures and the same total wait.
"""

import math
from typing import TypeAlias

from attrs import define, field

from tileferry.domain.audit.events import (
    AuditEvent,
    CallFailed,
    RetryAttempted,
    RetrySucceeded,
)
from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    UPLOAD,
    DecisionRecord,
    Failure,
    PastCall,
    RetryAt,
    RetryCategory,
)

OPEN_CALLS_MAX = 10_000
_Event: TypeAlias = RetryAttempted | CallFailed | RetrySucceeded
_Context: TypeAlias = tuple[str, str, str | None, str | None, str | None]
_Records: TypeAlias = list[DecisionRecord]


def is_first_failure(failure: Failure) -> bool:
    """Return whether a failure was the first of its call."""
    return failure.attempt == 1 and failure.rate_limited == 0


def get_policy_name(event: AuditEvent) -> str | None:
    """Return the name of the policy that was applied to the event's call; ``None`` if it has no
    call.
    """
    match event:
        case RetryAttempted() | CallFailed():
            return event.decision_record.policy_name or _derive_policy_name(event)
        case RetrySucceeded():
            return event.policy_name or _derive_policy_name(event)
        case _:
            return None


# For old entries only, which do not name their policy. Do not add to this table.
_OLD_OPERATIONS = (
    (RetryCategory.API_REQUEST, "GET ", DOWNLOAD_POLICY.name),
    (RetryCategory.API_VALIDATION, "Upload flight ", UPLOAD),
)


def _derive_policy_name(event: _Event) -> str | None:
    for category, beginning, name in _OLD_OPERATIONS:
        if event.retry_category == category and event.operation.startswith(beginning):
            return name
    return next((item.name for item in RetryCategory if item == event.retry_category), None)


@define
class CallCollector:
    """Reads events in log order and returns each call when it ends."""

    incomplete: int = field(default=0, init=False)
    """Calls that ended but whose first events are not in the log."""
    _abandoned: int = field(default=0, init=False)
    _open: dict[_Context, dict[str, _Records]] = field(factory=dict, init=False)
    """Calls that have not ended, by context and key."""
    _open_count: int = field(default=0, init=False)

    @property
    def unfinished(self) -> int:
        """Calls without an end in the log: still in progress, or lost with their process."""
        return self._abandoned + self._open_count

    def add(self, event: AuditEvent) -> PastCall | None:
        """Process one event; return the call that it ends, if any."""
        match event:
            case RetryAttempted():
                self._add_failure(event)
                return None
            case CallFailed():
                return self._close_failed(event)
            case RetrySucceeded():
                return self._close_succeeded(event)
            case _:
                return None

    def _add_failure(self, event: RetryAttempted) -> None:
        key = event.decision_record.failure.key
        before = self._pop(_get_context(event), key)
        if is_first_failure(event.decision_record.failure):
            self._abandoned += before is not None
            self._keep(event, [event.decision_record])
        elif before is not None and _is_next_failure(event.decision_record, before):
            self._keep(event, [*before, event.decision_record])
        # Otherwise the call began before the first event; its end is counted as incomplete.

    def _close_failed(self, event: CallFailed) -> PastCall | None:
        record = event.decision_record
        before = self._pop(_get_context(event), record.failure.key)
        if is_first_failure(record.failure):
            self._abandoned += before is not None
            return PastCall(records=(record,), succeeded=False)
        if before is None or not _is_next_failure(record, before):
            self.incomplete += 1
            return None
        return PastCall(records=(*before, record), succeeded=False)

    def _close_succeeded(self, event: RetrySucceeded) -> PastCall | None:
        context = _get_context(event)
        for key, records in self._open.get(context, {}).items():
            call = PastCall(records=tuple(records), succeeded=True)
            if len(records) == event.total_attempts - 1 and math.isclose(
                call.waited_s, event.total_delay_seconds, abs_tol=1e-9
            ):
                self._pop(context, key)
                return call
        self.incomplete += 1
        return None

    def _keep(self, event: _Event, records: _Records) -> None:
        if self._open_count >= OPEN_CALLS_MAX:
            context, calls = next(iter(self._open.items()))  # the oldest context
            self._pop(context, next(iter(calls)))
            self._abandoned += 1
        self._open.setdefault(_get_context(event), {})[records[-1].failure.key] = records
        self._open_count += 1

    def _pop(self, context: _Context, key: str) -> _Records | None:
        calls = self._open.get(context, {})
        records = calls.pop(key, None)
        if records is not None:
            self._open_count -= 1
            if not calls:
                del self._open[context]
        return records


def _get_context(event: _Event) -> _Context:
    return (
        event.retry_category,
        event.operation,
        event.tenant_id,
        event.correlation_id,
        event.trace_id,
    )


def _is_next_failure(record: DecisionRecord, before: _Records) -> bool:
    """Return whether a failure has the numbers that the previous decision assigned."""
    decision, failure = before[-1].decision, record.failure
    return isinstance(decision, RetryAt) and (decision.attempt, decision.rate_limited) == (
        failure.attempt,
        failure.rate_limited,
    )
