"""Checkers of the audit log and of the load on the provider."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from attrs import define, field

from simulation.checkers.base import Checker
from simulation.scheduler import Process
from simulation.world import Call
from tileferry.adapters.memory import MemoryAuditSink
from tileferry.application.audit_reader import DecodedEntry
from tileferry.domain.audit import verify_chain


@define(eq=False)
class AuditChecker(Checker):
    """The audit log is a whole chain, and every retry decision can be recomputed."""

    invariants: ClassVar[tuple[int, ...]] = (20, 21)
    log: MemoryAuditSink

    def at_end(self) -> None:
        report = verify_chain(self.log.iter_entries(), expected_head=self.log.read_head())
        self.require(report.intact, f"the audit log is broken: {report.problem}")
        for entry in self.log.iter_entries():
            read = DecodedEntry.from_entry(entry)
            self.require(read.event, f"audit entry {entry.sequence}: {read.problem}")
            difference = read.difference
            self.require(difference is None, f"audit entry {entry.sequence}: {difference}")


@define
class _Series:
    """Calls of one process that failed one after the other."""

    since_s: float
    calls: int = 0


@define(eq=False)
class LoadChecker(Checker):
    """While nothing succeeds, a process asks no more often than its retry budget refills."""

    invariants: ClassVar[tuple[int, ...]] = (22,)
    capacity: float
    refill_per_s: float
    concurrency: int
    calls: tuple[str, ...]
    _series: dict[tuple[str, int], _Series] = field(factory=dict)

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return dict.fromkeys(self.calls, self.check_load)

    def check_load(self, call: Call) -> None:
        """Count the failures since the last success."""
        key = _identify(call.process)
        if call.error is None:
            self._series.pop(key, None)
            return
        now_s = self.world.time_s
        series = self._series.setdefault(key, _Series(now_s))
        series.calls += 1
        elapsed_s = now_s - series.since_s
        # Retries cost a token each; first attempts of a pass and of each worker do not.
        allowed = self.capacity + elapsed_s * self.refill_per_s
        allowed += 2 * self.concurrency + elapsed_s / 2
        self.require(
            series.calls <= allowed,
            f"{series.calls} calls in {elapsed_s:.1f} s without a success, {allowed:.0f} allowed",
        )


def _identify(process: Process) -> tuple[str, int]:
    return process.name, process.generation
