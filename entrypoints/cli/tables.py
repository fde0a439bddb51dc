"""Tables that fit the terminal: they drop columns on a narrow one, and never cut a value."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from attrs import frozen
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from tileferry.domain.text import printable
from tileferry.entrypoints.cli.consoles import stdout

FOLDED_CHARS_MIN = 12
"""A column whose cells fold is not made narrower than this before another one is dropped."""
_WIDE = 10_000
_REFUSALS_MAX = 20


class FittingTable(Table):
    """A table that drops columns until the others fit.

    ``drop`` names the columns that may be dropped, the least important first. If the others still
    do not fit, their cells continue on the next line.
    """

    def __init__(self, *, drop: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self.drop = drop

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the columns that fit, and name the others below."""
        shown, dropped = self, list[str]()
        for name in self.drop:
            if shown.fits(console, options):
                break
            if any(column.header == name for column in shown.columns):
                shown = shown.without_column(name)
                dropped.append(name)
        if dropped:
            note = f"no room for: {', '.join(dropped)}"
            shown.caption = f"{shown.caption}; {note}" if shown.caption else note
            shown.caption_justify = "left"
        if not shown.fits(console, options):
            for column in shown.columns:
                column.no_wrap, column.overflow = False, "fold"
        return Table.__rich_console__(shown, console, options)

    def fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Return whether every value can be shown whole."""
        wide = options.update(max_width=_WIDE)
        needed = sum(_measure(column, console, wide)[0] for column in self.columns)
        full = sum(_measure(column, console, wide)[1] for column in self.columns)
        bare = copy(self)
        bare.title = bare.caption = None
        bare.min_width = None
        borders = Measurement.get(console, wide, bare).maximum - full
        return needed + borders <= options.max_width

    def without_column(self, heading: str) -> "FittingTable":
        """Return the table without a column."""
        kept = [column for column in self.columns if column.header != heading]
        table = copy(self)
        table.columns, table.rows = [], []
        for column in kept:
            table.add_column(
                column.header,
                justify=column.justify,
                no_wrap=column.no_wrap,
                overflow=column.overflow,
                style=column.style,
            )
        cells = [list(column.cells) for column in kept]
        for index, row in enumerate(self.rows):
            values = [column[index] for column in cells]
            table.add_row(*values, style=row.style, end_section=row.end_section)
        return table


@frozen
class FittedColumn:
    """A column of a table that is dropped if the terminal is too narrow, the last rank first."""

    name: str
    cells: Sequence[str]
    rank: int = 0
    """Columns of rank 0 are never dropped."""
    right: bool = False


def build_fitted_table(columns: Sequence[FittedColumn], *, total_last: bool = False) -> Table:
    """Return a table of columns; ``total_last`` separates the last row from the others."""
    ranked = sorted((column for column in columns if column.rank), key=lambda column: -column.rank)
    table = FittingTable(
        drop=[column.name for column in ranked],
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=True,
        )
    rows = list(zip(*(column.cells for column in columns), strict=True))
    for number, row in enumerate(rows, start=1):
        table.add_row(*map(Text, row), end_section=total_last and number == len(rows) - 1)
    return table


def build_facts_table(title: str, rows: Mapping[str, object]) -> Table:
    """Return a table of names and values."""
    title = printable(title)  # it may come from a file
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE)
    table.min_width = len(title)  # otherwise it would wrap
    table.show_header = False
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(str(value)))  # Text, so that brackets are not read as markup
    return table


def print_refusals(
    what: str, why: str, refusals: Sequence[tuple[str, str]], *, count: int | None = None
) -> None:
    """Print the first refused items with their reasons.

    Only some of very many are kept; then ``count`` is their full number.
    """
    if not refusals:
        return
    table = FittingTable(box=box.SIMPLE)
    table.add_column(what, overflow="fold")
    table.add_column(why, overflow="fold")
    for refused, reason in refusals[:_REFUSALS_MAX]:
        table.add_row(Text(refused), Text(reason))
    stdout.print(table)
    kept = len(refusals)
    total = kept if count is None else count
    if total > _REFUSALS_MAX:
        those = "them all" if total == kept else f"the first {kept:,}"
        stdout.print(f"… and {total - _REFUSALS_MAX:,} more; --json has {those}.")


def _measure(column: Column, console: Console, options: ConsoleOptions) -> tuple[int, int]:
    """Return the width that a column needs, and the width of its longest cell."""
    sizes = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    longest = max(size.maximum for size in sizes)
    if column.no_wrap:
        return longest, longest
    if column.overflow == "fold":
        return min(longest, FOLDED_CHARS_MIN), longest
    return max(size.minimum for size in sizes), longest
