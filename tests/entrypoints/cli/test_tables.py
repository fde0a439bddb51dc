"""On a narrow terminal a table loses columns, never digits."""

import io
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich import box
from rich.console import Console, RenderableType

from tileferry.entrypoints.cli.policy_tables import render_policies
from tileferry.entrypoints.cli.tables import FittingTable
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import list_policies

HEADINGS = ("tile", "attempts", "size", "age")
DROPPED = ("age", "size", "attempts")


def render(what: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(what)
    assert all(len(line) <= width for line in out.getvalue().splitlines())
    return out.getvalue()


def build_table(rows: list[tuple[str, ...]]) -> FittingTable:
    table = FittingTable(box=box.SIMPLE, drop=DROPPED)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(*(st.integers(0, 10**12).map(lambda n: f"{n:,}") for _ in HEADINGS)),
        min_size=1,
        max_size=4,
    ),
    width=st.integers(24, 120),
)
def test_shown_values_are_whole_and_columns_are_dropped_in_order(
    rows: list[tuple[str, ...]], width: int
) -> None:
    text = render(build_table(rows), width)
    head = next(line for line in text.splitlines() if "tile" in line).split()
    kept = [name for name in HEADINGS if name in head]
    assert kept == [name for name in HEADINGS if name not in DROPPED[: len(HEADINGS) - len(kept)]]
    for row in rows:
        for name, value in zip(HEADINGS, row, strict=True):
            assert (value in text) or name not in kept
    assert "…" not in text
    assert ("no room for: age" in " ".join(text.split())) is (len(kept) < len(HEADINGS))


def test_cells_continue_below_when_no_column_can_be_dropped() -> None:
    table = FittingTable(box=None)
    table.add_column("tile", no_wrap=True)
    table.add_column("sha256", no_wrap=True)
    table.add_row("flight-f1-deae2d4d/16/39000/22000", "0123456789abcdef" * 4)
    text = render(table, 40)
    assert "…" not in text
    assert sum(map(str.isdigit, text)) == sum(
        map(str.isdigit, "sha256" + "flight-f1-deae2d4d/16/39000/22000" + "0123456789" * 4)
    )


def render_policy_table() -> RenderableType:
    return render_policies(list_policies(load_config()).values())


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("build", [render_policy_table])
def test_no_table_cuts_a_value(build: Callable[[], RenderableType], width: int) -> None:
    assert "…" not in render(build(), width)
