"""Checkers of idempotency keys: who may run an operation, and what its callers get."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import inf
from typing import Any, ClassVar

from attrs import define, field

from simulation.checkers.base import Checker
from simulation.scheduler import Process
from simulation.world import Call
from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.application import JsonCodec
from tileferry.domain.idempotency import Completed, InProgress


@define(eq=False)
class IdempotencyChecker(Checker):
    """An operation runs only under a valid claim, not after its result; all get one result."""

    invariants: ClassVar[tuple[int, ...]] = (10, 11)
    store: MemoryIdempotencyStore
    lease_s: float
    results: dict[str, list[Any]] = field(factory=lambda: defaultdict(list))
    """What was recorded for each key, each time."""
    runs: Counter[str] = field(factory=Counter)
    """How often the operation of each key began."""
    _confirmed: dict[tuple[str, str, int], float] = field(factory=dict)
    """When the store last told a process that it holds a key, since its last attempt."""
    _holders: dict[tuple[str, str], Process] = field(factory=dict)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {
            "keys.claim": self.note_claim,
            "keys.renew": self.note_renewal,
            "keys.complete": self.note_result,
            "effects.perform": self.note_attempt,
            "keys.clear": self.note_clear,
        }

    def note_claim(self, call: Call) -> None:
        """Note which process made a claim; it took effect even if its answer was lost."""
        self._holders[call.args[0], call.kwargs["owner"]] = call.process
        self._confirm(call.args[0], call)

    def note_renewal(self, call: Call) -> None:
        """Note that a process still holds a key; its lease counts from now."""
        self._confirm(call.args[0].key, call)
        if call.error is None:
            state = self.store._records[call.args[0].key].state
            expires_at = datetime.fromtimestamp(self.world.now() + self.lease_s, UTC)
            self.require(
                isinstance(state, InProgress) and state.lease_expires_at == expires_at,
                f"{call.args[0].key} is renewed, but not until {expires_at}",
            )

    def _confirm(self, key: str, call: Call) -> None:
        if call.error is None:
            self._confirmed[_name_attempts(key, call.process)] = self.world.time_s

    def note_clear(self, call: Call) -> None:
        """Note that an operator cleared the key; its claimant does not know yet."""
        for name in self._confirmed:
            if name[0] == call.args[0]:
                self._confirmed[name] = -inf

    def note_attempt(self, call: Call) -> None:
        """Note that the next attempt needs another look at the claim."""
        self._confirmed.pop(_name_attempts(call.args[0], call.process), None)

    def begin_operation(self, key: str, process: Process) -> None:
        """Check that an attempt of an operation, the first or a retry, may begin now."""
        self.world.checks += 1
        self.runs[key] += 1
        self.require(
            self.runs[key] == 1 or self.world.fault_pairs, f"{key} runs again without a reason"
        )
        confirmed_s = self._confirmed.get(_name_attempts(key, process))
        self.require(
            confirmed_s is not None, f"{process.name} runs {key} without a look at its claim"
        )
        record = self.store._records.get(key)
        if record is None:
            self.require(self.world.call_counts["keys.clear"], f"{key} runs without a claim")
            return
        # A process that stood still after it looked cannot know that its lease ended.
        if confirmed_s is not None and self.world.time_s < confirmed_s + self.lease_s:
            self.require(isinstance(record.state, InProgress), f"{key} runs after it has ended")
            holder = self._holders.get((key, record.owner))
            self.require(holder is process, f"{process.name} runs {key}, claimed by {record.owner}")

    def note_result(self, call: Call) -> None:
        """Note a result that is recorded, whether its caller learned of it or not."""
        record = self.store._records.get(call.args[0].key)
        if record is not None and isinstance(record.state, Completed):
            known = self.results[record.key]
            value = JsonCodec().decode(record.state.result)
            if value not in known:
                self.require(
                    len(known) <= self.world.call_counts["keys.clear"],
                    f"{record.key} has the results {known} and {value}",
                )
                known.append(value)

    def check_result(self, key: str, value: Any) -> None:
        """Check what a caller got."""
        self.world.checks += 1
        known = self.results[key]
        self.require(value in known, f"a caller of {key} got {value}, recorded are {known}")


def _name_attempts(key: str, process: Process) -> tuple[str, str, int]:
    return key, process.name, process.generation
