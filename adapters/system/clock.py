"""The machine's clock."""

import asyncio
import time

from tileferry.adapters.system.waiting import wait


class SystemClock:
    """Real time and real waiting."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(wait)
    sleep_async = staticmethod(asyncio.sleep)
