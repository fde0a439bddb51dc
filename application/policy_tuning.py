"""Proposes and simulates retry policies from the audit history."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from attrs import define, field, frozen

from tileferry.application.audit_reader import AuditReader
from tileferry.domain.audit import CallCollector, get_policy_name
from tileferry.domain.retry import (
    PastCall,
    RetryCategory,
    RetryPolicy,
    TuningReport,
    WhatIfSummary,
    tune_policy,
)

CALLS_KEPT_MAX = 20_000
"""The newest calls of one policy that are considered; they are held in memory."""


@frozen(kw_only=True)
class TunablePolicy:
    """A policy, and the fields that have a setting."""

    policy: RetryPolicy
    tunable: Collection[str]


@frozen(kw_only=True)
class PolicyHistory:
    """What the log has about one policy, and what follows from it."""

    report: TuningReport
    hours: int
    """The number of hours in which a call ended; many calls of one hour may have one cause."""
    left_out: int
    """Calls that are not entirely within the period, and those beyond the newest ones."""


@frozen(kw_only=True)
class PolicySimulation:
    """What a different policy would have changed."""

    summary: WhatIfSummary
    unfinished: int
    """Calls that had not ended by the end of the period."""
    incomplete: int
    """Calls that began before the period."""


@define
class _History:
    collector: CallCollector = field(factory=CallCollector)
    calls: deque[PastCall] = field(factory=lambda: deque(maxlen=CALLS_KEPT_MAX))
    ended: int = 0
    hours: set[int] = field(factory=set)

    @property
    def left_out(self) -> int:
        collector = self.collector
        return collector.unfinished + collector.incomplete + self.ended - len(self.calls)


_HOUR_S = 3600


@frozen(kw_only=True)
class PolicyTuning:
    """Reads the audit log, and reports on policies; it changes nothing."""

    reader: AuditReader

    def propose(
        self, policies: Mapping[str, TunablePolicy], *, since: datetime | None
    ) -> Sequence[PolicyHistory]:
        """Return what the log says about each policy from a moment on; nothing is changed."""
        found = {name: _History() for name in policies}
        for read in self.reader.read_since(since):
            event = read.event
            if event is None or (since is not None and event.timestamp < since):
                continue
            history = found.get(get_policy_name(event) or "")
            call = None if history is None else history.collector.add(event)
            if history is not None and call is not None:
                history.calls.append(call)
                history.ended += 1
                history.hours.add(int(event.timestamp.timestamp()) // _HOUR_S)
        return [
            PolicyHistory(
                report=tune_policy(
                    name,
                    policies[name].policy,
                    list(history.calls),
                    tunable=policies[name].tunable,
                ),
                hours=len(history.hours),
                left_out=history.left_out,
            )
            for name, history in found.items()
        ]

    def simulate(
        self, name: str, category: RetryCategory, policy: RetryPolicy, *, since: datetime | None
    ) -> PolicySimulation:
        """Replay the calls of the policy with this name under ``policy``."""
        summary, collector = WhatIfSummary(policy), CallCollector()
        for read in self.reader.read_since(since, holding=[category.value]):
            event = read.event
            if event is None or (since is not None and event.timestamp < since):
                continue
            call = collector.add(event) if get_policy_name(event) == name else None
            if call is not None:
                summary.add(call)
        return PolicySimulation(
            summary=summary, unfinished=collector.unfinished, incomplete=collector.incomplete
        )
