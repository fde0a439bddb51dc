"""A recorder that forgets everything with its process."""

from collections import deque
from collections.abc import Iterator, Mapping
from threading import Lock

from attrs import define, field

from tileferry.application.ports import Clock
from tileferry.application.ports.fdr import FdrRecord
from tileferry.domain.canonical import JsonValue


@define(kw_only=True, eq=False)
class MemoryFdrClient:
    """Keeps the last ``records_max`` events."""

    clock: Clock
    records_max: int = 10_000
    _records: deque[FdrRecord] = field(init=False)
    _sequence: int = field(default=0, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._records = deque(maxlen=self.records_max)

    def record(
        self,
        kind: str,
        payload: Mapping[str, JsonValue],
        *,
        durable: bool = False,  # noqa: ARG002  # memory has one durability only
    ) -> None:
        """Record an event."""
        with self._guard:
            record = FdrRecord(
                sequence=self._sequence + 1,
                recorded_at_s=self.clock.now(),
                kind=kind,
                payload=payload,
            )
            self._records.append(record)
            self._sequence = record.sequence

    def records(self) -> Iterator[FdrRecord]:
        """Read back what is there, oldest first."""
        with self._guard:
            return iter(tuple(self._records))
