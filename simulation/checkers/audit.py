"""Checkers of the audit log and of the load on the provider."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from attrs import define, field

from simulation.checkers.base import Checker
from simulation.scheduler import Process
from simulation.world import Call
from tileferry.adapters.memory import MemoryAuditSink
from tileferry.application.audit_reader import DecodedEntry
from tileferry.domain.audit import RetryAttempted, verify_chain
from tileferry.domain.retry import RetryBudget, RetryReason
from tileferry.domain.tiles import ProviderFault


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


OUTAGE_SHARE = 0.1
UNANSWERED = (ProviderFault.UNREACHABLE, ProviderFault.TIMED_OUT)


@define
class _Series:
    """Calls of one process without a success in between."""

    since_s: float
    calls: int = 0


@define(eq=False)
class LoadChecker(Checker):
    """In a total outage, a process makes at most a tenth of its normal load of calls.

    Before that, it may spend the tokens that it has, and end the calls that are under way. Whatever
    the errors are, its retries are bounded by the tokens.
    """

    invariants: ClassVar[tuple[int, ...]] = (22,)
    budget: RetryBudget
    concurrency: int
    normal_per_s: float
    """How many calls it makes if all of them succeed."""
    _outages: dict[tuple[str, int], _Series] = field(factory=dict)
    """The calls without an answer."""
    _retries: dict[tuple[str, int], _Series] = field(factory=dict)
    """The retries, which cost a token each."""
    _decided: set[tuple[str, int, str]] = field(factory=set)
    """The operations that will be retried."""

    def handlers(self) -> Mapping[str, Callable[[Call], None]]:
        return {
            "audit.emit": self.note_retry,
            "provider.fetch_tile": self.check_load,
            "provider.fetch_listing_page": self.check_load,
        }

    def note_retry(self, call: Call) -> None:
        """Note that a call is to be retried, and that this costs a token."""
        for event in call.args[0]:
            if isinstance(event, RetryAttempted) and (
                event.decision_record.decision.reason is RetryReason.BACKOFF
            ):
                self._decided.add((*_identify(call.process), event.operation))

    def check_load(self, call: Call) -> None:
        """Count the calls and retries since the last success."""
        key = _identify(call.process)
        is_tile = call.name == "provider.fetch_tile"
        operation = (*key, f"GET tile {call.args[0]}" if is_tile else "GET listing")
        is_retry = operation in self._decided
        self._decided.discard(operation)
        if call.error is None:
            self._retries.pop(key, None)
        if getattr(call.error, "fault", None) not in UNANSWERED:
            self._outages.pop(key, None)
        else:
            self._count(self._outages, key, OUTAGE_SHARE * self.normal_per_s, self.concurrency)
        if call.error is not None:
            self._count(self._retries, key, self.budget.refill_per_s, 0, calls=int(is_retry))

    def _count(
        self,
        known: dict[tuple[str, int], _Series],
        key: tuple[str, int],
        rate_per_s: float,
        first: int,
        *,
        calls: int = 1,
    ) -> None:
        """Count calls; ``first`` of them are new, and need no token."""
        series = known.setdefault(key, _Series(self.world.time_s))
        series.calls += calls
        elapsed_s = self.world.time_s - series.since_s
        # Retries that were decided before the last success have their tokens.
        allowed = self.budget.capacity + self.concurrency + first + elapsed_s * rate_per_s
        if series.calls > allowed:
            self.fail(
                f"{series.calls} calls in {elapsed_s:.1f} s without a success,"
                f" {allowed:.1f} allowed"
            )


def _identify(process: Process) -> tuple[str, int]:
    return process.name, process.generation
