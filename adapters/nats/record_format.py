"""An idempotency record as it stands in a bucket: JSON, with the number of its form."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError, MessagingError
from tileferry.domain.idempotency import (
    Completed,
    FailedForGood,
    IdempotencyRecord,
    InProgress,
    RecordState,
)

VERSION = 1


def encode(record: IdempotencyRecord) -> bytes:
    """Return the bytes that ``decode`` reads."""
    return canonical_json(
        {
            "version": VERSION,
            "key": record.key,
            "fingerprint": record.fingerprint,
            "epoch": record.epoch,
            "state": _state_as_json(record.state),
            "expires_at": None if record.expires_at is None else record.expires_at.isoformat(),
        },
        field="record",
    )


def decode(content: bytes, *, key: str | None = None) -> IdempotencyRecord:
    """Read a record; what is none, or another than that of ``key``, is refused."""
    try:
        data = json.loads(content)
        if data["version"] != VERSION:
            raise _unreadable(key, f"has form {data['version']!r}, and known is {VERSION}")
        expires_at = data["expires_at"]
        record = IdempotencyRecord(
            key=data["key"],
            fingerprint=data["fingerprint"],
            epoch=data["epoch"],
            state=_state_from_json(data["state"]),
            expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _unreadable(key, "cannot be read") from error
    if key is not None and record.key != key:
        raise _unreadable(key, f"is that of key {record.key}")
    return record


def _state_as_json(state: RecordState) -> JsonValue:
    match state:
        case InProgress():
            return {
                "kind": "in_progress",
                "owner": state.owner,
                "lease_expires_at": state.lease_expires_at.isoformat(),
            }
        case Completed():
            return {
                "kind": "completed",
                "result": b64encode(state.result).decode("ascii"),
                "recorded_at": state.recorded_at.isoformat(),
            }
        case FailedForGood():
            return {
                "kind": "failed_for_good",
                "error_type": state.error_type,
                "error_message": state.error_message,
                "recorded_at": state.recorded_at.isoformat(),
            }
        case _:
            assert_never(state)


def _state_from_json(data: Mapping[str, Any]) -> RecordState:
    match data["kind"]:
        case "in_progress":
            return InProgress(
                owner=data["owner"],
                lease_expires_at=datetime.fromisoformat(data["lease_expires_at"]),
            )
        case "completed":
            return Completed(
                result=b64decode(data["result"], validate=True),
                recorded_at=datetime.fromisoformat(data["recorded_at"]),
            )
        case "failed_for_good":
            return FailedForGood(
                error_type=data["error_type"],
                error_message=data["error_message"],
                recorded_at=datetime.fromisoformat(data["recorded_at"]),
            )
        case kind:
            raise InvalidValueError(field="state.kind", value=kind, problem="is not known")


def _unreadable(key: str | None, problem: str) -> MessagingError:
    whose = "" if key is None else f" of idempotency key {key}"
    return MessagingError(
        problem=f"the record{whose} {problem}",
        remedy="see what else writes to the bucket; clear the key if its work may be done again",
    )
