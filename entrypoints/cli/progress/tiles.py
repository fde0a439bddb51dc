"""How many tiles were gone through, for whoever waits at a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from tileferry.entrypoints.cli.output import notes

SILENT_S = 1.0
"""What takes no longer is not worth a word."""
_EVERY = 500
"""Looking at the clock for each tile would cost more than the tile."""


@contextmanager
def counting(
    doing: str, console: Console = notes, clock_s: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Return what is to be called for each tile; on a terminal it counts aloud."""
    status = console.status(doing)
    begun_s, seen = clock_s(), 0

    def on_tile() -> None:
        nonlocal seen
        seen += 1
        if seen % _EVERY == 0 and console.is_terminal and clock_s() - begun_s > SILENT_S:
            status.update(f"{doing}: {seen:,} tiles gone through.")
            status.start()

    try:
        yield on_tile
    finally:
        status.stop()
