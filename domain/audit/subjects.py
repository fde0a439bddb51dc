"""What an event tells of: what a reader of the audit log may ask for."""

import json
from collections.abc import Mapping
from typing import Any

from tileferry.domain.audit.events import AuditEvent, RetryAttempted, RetryExhausted

_SUBJECTS = ("idempotency_key", "subject", "tile_id")
"""No kind of event has more than one of these fields."""


def subject_of(event: AuditEvent) -> str | None:
    """Return the key, the subject or the tile of an event that has one.

    Of a retry it is the key that the decision was made with: an idempotency key, or the call's.
    """
    if isinstance(event, RetryAttempted | RetryExhausted):
        return event.decision_record.failure.key
    return next((getattr(event, name) for name in _SUBJECTS if hasattr(event, name)), None)


def tells_of(body: bytes, subject: str) -> bool:
    """Tell whether an entry's body has ``subject`` as its correlation id or its subject.

    What a log gives back need not be an event: then it tells of nothing.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(data, Mapping):
        return False
    key = _at(_at(data.get("decision_record"), "failure"), "key")
    return subject in [key, *(data.get(name) for name in ("correlation_id", *_SUBJECTS))]


def _at(data: Any, name: str) -> Any:
    return data.get(name) if isinstance(data, Mapping) else None
