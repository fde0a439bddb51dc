"""The machine itself: its clock, its disk, its threads."""

from tileferry.adapters.system.attentive_clock import AttentiveClock
from tileferry.adapters.system.clock import SystemClock
from tileferry.adapters.system.disk import SystemDisk
from tileferry.adapters.system.identity import new_cache_id, new_id, new_run_id, place_of
from tileferry.adapters.system.retry_tokens import SharedRetryTokens
from tileferry.adapters.system.threads import ThreadHeartbeat, ThreadWorkers, offload

__all__ = [
    "AttentiveClock",
    "SharedRetryTokens",
    "SystemClock",
    "SystemDisk",
    "ThreadHeartbeat",
    "ThreadWorkers",
    "new_cache_id",
    "new_id",
    "new_run_id",
    "offload",
    "place_of",
]
