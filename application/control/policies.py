"""The policies for retries of runs and partitions."""

from datetime import datetime

from attrs import field, frozen

from tileferry.application.ports.work import PlannedRetry
from tileferry.domain.partitions import Partition, TerminalityPolicy, find_next_automatic_retry
from tileferry.domain.retry import PARTITION_POLICY, QUARANTINE_POLICY, RUN_POLICY, RetryPolicy


@frozen(kw_only=True)
class WorkPolicies:
    """The operator's policies for runs and partitions."""

    run: RetryPolicy = RUN_POLICY
    partition: RetryPolicy = PARTITION_POLICY
    terminality: TerminalityPolicy = field(factory=TerminalityPolicy)
    quarantine: RetryPolicy = QUARANTINE_POLICY
    """For runs that lose workers."""

    def plan_retry(self, partition: Partition, now: datetime) -> PlannedRetry | None:
        """Return when automation may retry a partition; ``None`` if it may not."""
        when = find_next_automatic_retry(
            partition, now=now, terminality=self.terminality, policy=self.partition
        )
        if when is None:
            return None
        policy = self.partition
        strategy = (
            f"{policy.base_delay:g} s, times {policy.backoff_multiplier:g}, at most"
            f" {policy.max_delay:g} s"
        )
        return PlannedRetry(next_run_at=when, backoff_strategy=strategy)
