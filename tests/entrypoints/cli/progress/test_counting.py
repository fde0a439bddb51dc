"""The count that whoever waits for many tiles sees."""

import io

from rich.console import Console

from tileferry.adapters.memory import ManualClock
from tileferry.entrypoints.cli.progress.counting import counting


def shown(
    *, terminal: bool, seconds_a_tile: float, tiles: int = 1_000, of: int | None = None
) -> str:
    stream, clock = io.StringIO(), ManualClock()
    console = Console(file=stream, force_terminal=terminal, width=80)
    with counting("Exporting", of=of, console=console, clock_s=clock.monotonic) as on_tile:
        for _ in range(tiles):
            clock.pass_time(seconds_a_tile)
            on_tile()
    return stream.getvalue()


def test_what_takes_long_is_counted_on_a_terminal() -> None:
    seen = shown(terminal=True, seconds_a_tile=0.01)
    assert "Exporting: 1,000 tiles" in seen
    assert seen.endswith("\x1b[1A\x1b[2K")  # the line is taken away again


def test_of_a_known_number_it_is_told_how_far_it_came() -> None:
    seen = shown(terminal=True, seconds_a_tile=0.01, of=4_000)
    assert "Exporting: 1,000 tiles" in seen
    assert "1000/4000" in seen


def test_what_is_soon_done_says_nothing() -> None:
    assert shown(terminal=True, seconds_a_tile=0.0001) == ""


def test_without_a_terminal_nothing_is_said() -> None:
    assert shown(terminal=False, seconds_a_tile=1) == ""
