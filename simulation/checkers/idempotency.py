"""Checkers of idempotency keys: who may run an operation, and what its callers get."""

from collections import defaultdict
from collections.abc import Callable, Mapping
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
    _fresh: dict[tuple[str, str], float] = field(factory=dict)
    """When a process claimed a key whose operation it has not begun."""
    _holders: dict[tuple[str, str], Process] = field(factory=dict)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {
            "keys.claim": self.note_claim,
            "keys.complete": self.note_result,
            "effects.perform": self.note_attempt,
            "keys.clear": self.note_clear,
        }

    def note_claim(self, call: Call) -> None:
        """Note which process made a claim; an answer that is lost counts too."""
        self._holders[call.args[0], call.kwargs["owner"]] = call.process
        self._fresh[call.args[0], call.process.name] = self.world.time_s

    def note_clear(self, call: Call) -> None:
        """Note that an operator took the key away from whoever claimed it."""
        for key, process in list(self._fresh):
            if key == call.args[0]:
                del self._fresh[key, process]

    def note_attempt(self, call: Call) -> None:
        """Note that the next attempt is a retry."""
        self._fresh.pop((call.args[0], call.process.name), None)

    def begin_operation(self, key: str, process: Process) -> None:
        """Check that an operation may begin now.

        Its retries are not checked: they go on when the claim is lost meanwhile, because its lease
        ended or an operator cleared the key.
        """
        claimed_s = self._fresh.get((key, process.name))
        # A process that stood still between its claim and its operation cannot know of its delay.
        is_first = claimed_s is not None and self.world.time_s < claimed_s + self.lease_s
        self.world.checks += 1
        record = self.store._records.get(key)
        if record is None:
            self.require(self.world.call_counts["keys.clear"], f"{key} runs without a claim")
            return
        if is_first:
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
