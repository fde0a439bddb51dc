"""The count that whoever waits for an export sees."""

import io

from rich.console import Console

from tileferry.adapters.memory import ManualClock
from tileferry.entrypoints.cli.progress.tiles import counting


def shown(*, terminal: bool, seconds_a_tile: float, tiles: int = 1_000) -> str:
    stream, clock = io.StringIO(), ManualClock()
    console = Console(file=stream, force_terminal=terminal, width=80)
    with counting("Exporting", console, clock.monotonic) as on_tile:
        for _ in range(tiles):
            clock.pass_time(seconds_a_tile)
            on_tile()
    return stream.getvalue()


def test_what_takes_long_is_counted_on_a_terminal() -> None:
    assert "Exporting: 1,000 tiles gone through." in shown(terminal=True, seconds_a_tile=0.01)


def test_what_is_soon_done_says_nothing() -> None:
    assert "tiles gone through" not in shown(terminal=True, seconds_a_tile=0.0001)


def test_without_a_terminal_nothing_is_said() -> None:
    assert shown(terminal=False, seconds_a_tile=1) == ""
