"""Adapters for the operating system: clock, disk, threads and unique ids."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.system.clock import InterruptibleClock, SystemClock
    from tileferry.adapters.system.host import (
        SystemDisk,
        describe_location,
        name_process,
        new_cache_id,
        new_id,
        new_run_id,
    )
    from tileferry.adapters.system.reference_clock import ReferenceClock
    from tileferry.adapters.system.threads import (
        SharedPace,
        SharedRetryTokens,
        ThreadFetchRunner,
        ThreadHeartbeat,
        offload,
    )

__all__ = [
    "InterruptibleClock",
    "ReferenceClock",
    "SharedPace",
    "SharedRetryTokens",
    "SystemClock",
    "SystemDisk",
    "ThreadFetchRunner",
    "ThreadHeartbeat",
    "describe_location",
    "name_process",
    "new_cache_id",
    "new_id",
    "new_run_id",
    "offload",
]
