"""How many things were gone through, for whoever waits at a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tileferry.entrypoints.cli.output import notes

SILENT_S = 1.0
"""What takes no longer is not worth a word."""
_EVERY = 500
"""Looking at the clock for each tile would cost more than the tile."""


@contextmanager
def counting(
    doing: str,
    things: str = "tiles",
    *,
    of: int | None = None,
    console: Console = notes,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[], None]]:
    """Return what is to be called for each thing; on a terminal it counts aloud.

    With a bar, where it is known how many there are; nothing of it is left at the end.
    """
    shown = Progress(*_columns(of), console=console, transient=True)
    task = shown.add_task(doing, total=of)
    begun_s, seen = clock_s(), 0

    def on_thing() -> None:
        nonlocal seen
        seen += 1
        if seen % _EVERY == 0 and console.is_terminal and clock_s() - begun_s > SILENT_S:
            shown.update(task, completed=seen, description=f"{doing}: {seen:,} {things}")
            shown.start()

    try:
        yield on_thing
    finally:
        if shown.live.is_started:  # else it would leave an empty line
            shown.stop()


def _columns(of: int | None) -> list[ProgressColumn]:
    told: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}")]
    return told if of is None else [*told, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
