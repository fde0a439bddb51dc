"""How many tiles of an area have been looked at, for whoever waits at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tileferry.application.ports.clock import Clock

_SILENT_S = 1.0
_STEP = 500


@contextmanager
def looking_at(tiles: int, clock: Clock) -> Iterator[Callable[[], None]]:
    """Show a bar, on a terminal and once the work takes long."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("tiles looked at"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("", total=tiles)
    begun_s, seen = clock.monotonic(), 0

    def on_tile() -> None:
        nonlocal seen
        seen += 1
        if seen % _STEP or not console.is_terminal:
            return
        if clock.monotonic() - begun_s > _SILENT_S:
            bar.start()
            bar.update(task, completed=seen)

    try:
        yield on_tile
    finally:
        if bar.live.is_started:  # else it would leave an empty line
            bar.stop()
