"""The count that whoever waits for many tiles sees."""

import io

from rich.console import Console

from tileferry.adapters.memory import ManualClock
from tileferry.entrypoints.cli.counting import show_count


def render_count(
    *, terminal: bool, seconds_a_tile: float, tiles: int = 1_000, of: int | None = None
) -> str:
    stream, clock = io.StringIO(), ManualClock()
    console = Console(file=stream, force_terminal=terminal, width=80)
    with show_count("Exporting", of=of, console=console, clock_s=clock.monotonic) as on_tile:
        for _ in range(tiles):
            clock.advance(seconds_a_tile)
            on_tile()
    return stream.getvalue()


def test_long_operation_shows_count_on_terminal() -> None:
    seen = render_count(terminal=True, seconds_a_tile=0.01)
    assert "Exporting: 1,000 tiles" in seen
    assert seen.endswith("\x1b[1A\x1b[2K")  # the line is taken away again


def test_known_total_is_shown() -> None:
    seen = render_count(terminal=True, seconds_a_tile=0.01, of=4_000)
    assert "Exporting: 1,000 tiles" in seen
    assert "1000/4000" in seen


def test_short_operation_shows_nothing() -> None:
    assert render_count(terminal=True, seconds_a_tile=0.0001) == ""


def test_nothing_is_shown_without_terminal() -> None:
    assert render_count(terminal=False, seconds_a_tile=1) == ""
