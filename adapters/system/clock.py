"""The machine's clock."""

import asyncio
import time


class SystemClock:
    """Real time and real waiting."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    sleep_async = staticmethod(asyncio.sleep)
