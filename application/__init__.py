"""The use cases, and the ports they need."""

from tileferry.application.cache_budget import CacheBudget
from tileferry.application.group_commit import GroupCommit, GroupLimits
from tileferry.application.retrying import call_with_retry, call_with_retry_async

__all__ = [
    "CacheBudget",
    "GroupCommit",
    "GroupLimits",
    "call_with_retry",
    "call_with_retry_async",
]
