"""The flight data recorder: safety-relevant events that outlive the process."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import format_field_name, integer, number

if TYPE_CHECKING:
    from attrs import Attribute

PAYLOAD_BYTES_MAX = 16 * 1024
"""Maximum size as canonical JSON. A recorder is for facts, not for content."""
KIND_CHARS_MAX = 64
GIVEUP_KIND = "c11.upload.giveup"
"""The record of a tile whose upload was given up."""
_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+", re.ASCII)


def _check_kind(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if not (isinstance(value, str) and len(value) <= KIND_CHARS_MAX and _KIND.fullmatch(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem="is not an event kind",
            remedy=f"use dotted names of a-z 0-9 _, at most {KIND_CHARS_MAX} characters",
        )


def _copy_payload(payload: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the payload as it will be read back; the sender cannot change the copy."""
    if not isinstance(payload, Mapping):
        raise InvalidValueError(
            field="FdrRecord.payload", value=payload, problem="must be a mapping"
        )
    content = canonical_json({"payload": payload}, field="FdrRecord")
    size = len(content) - len(b'{"payload":}')
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidValueError(
            field="FdrRecord.payload",
            value=f"{size} bytes",
            problem=f"must be at most {PAYLOAD_BYTES_MAX} bytes of JSON",
            remedy="truncate long texts before recording them",
        )
    copied: Mapping[str, JsonValue] = json.loads(content)["payload"]
    return copied


@frozen(kw_only=True)
class FdrRecord:
    """One event on the recorder."""

    sequence: int = field(validator=integer(1))
    recorded_at_s: float = field(validator=number(0))
    """Seconds since the Unix epoch."""
    kind: str = field(validator=_check_kind)
    payload: Mapping[str, JsonValue] = field(converter=_copy_payload)


@runtime_checkable
class FdrClient(Protocol):
    """Records events in limited space, dropping the oldest. Thread-safe."""

    def record(self, kind: str, payload: Mapping[str, JsonValue], *, durable: bool = False) -> None:
        """Record an event; with ``durable``, it is on disk when this returns."""
        ...

    def records(self) -> Iterator[FdrRecord]:
        """Yield the stored records, oldest first; also works after a crash."""
        ...
