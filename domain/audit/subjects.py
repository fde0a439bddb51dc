"""The subject and index keys of audit events, for lookups in the log."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import field, frozen, validators

from tileferry.domain.audit.events import (
    EVENT_KINDS,
    AuditEvent,
    CallFailed,
    RetryAttempted,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import aware, unicode

_SUBJECTS = ("idempotency_key", "subject", "tile_id")
"""No kind of event has more than one of these fields."""
_RETRIES = (RetryAttempted, CallFailed)
_optional_text = validators.optional(unicode)


def get_subject(event: AuditEvent) -> str | None:
    """Return the idempotency key, subject or tile id of an event; ``None`` if it has none.

    For a retry it is the key of the decision: an idempotency key, or the id of the call.
    """
    if isinstance(event, _RETRIES):
        return event.decision_record.failure.key
    return next((getattr(event, name) for name in _SUBJECTS if hasattr(event, name)), None)


@frozen(kw_only=True)
class EntryIndexKeys:
    """The keys by which an entry is indexed."""

    event_type: str
    timestamp: datetime = field(validator=aware)
    correlation_id: str | None = field(validator=_optional_text)
    subject: str | None = field(validator=_optional_text)

    @classmethod
    def parse(cls, body: bytes) -> "EntryIndexKeys | None":
        """Parse the index keys of an entry's body without parsing the whole event.

        Returns ``None`` if the body does not contain them.
        """
        try:
            data = json.loads(body)
            kind = EVENT_KINDS[data["event_type"]]
            subject = (
                data["decision_record"]["failure"]["key"]
                if issubclass(kind, _RETRIES)
                else next((data[name] for name in _SUBJECTS if name in data), None)
            )
            return cls(
                event_type=kind.event_type,
                timestamp=datetime.fromisoformat(data["timestamp"]),
                correlation_id=data["correlation_id"],
                subject=subject,
            )
        except (KeyError, TypeError, ValueError, RecursionError, InvalidValueError):
            return None


def is_about(body: bytes, subject: str) -> bool:
    """Return whether an entry's body has ``subject`` as its correlation id or subject.

    A body that is not a valid event matches nothing.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(data, Mapping):
        return False
    key = _get_field(_get_field(data.get("decision_record"), "failure"), "key")
    return subject in [key, *(data.get(name) for name in ("correlation_id", *_SUBJECTS))]


def _get_field(data: Any, name: str) -> Any:
    return data.get(name) if isinstance(data, Mapping) else None
