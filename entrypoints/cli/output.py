"""Output of commands: one JSON object with a versioned schema, or text for people."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from attrs import evolve
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileferry.domain.errors import InvalidValueError, TileManagerError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.tables import FittingTable
from tileferry.entrypoints.config import load_config

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tileferry.application.ports import Clock
    from tileferry.application.ports.progress import ProgressListener

with import_on_call(globals()):
    from tileferry.adapters.system import SystemClock
    from tileferry.application.ports.progress import NULL_LISTENER
    from tileferry.entrypoints.installation import Installation

_LOGGER = logging.getLogger("tileferry.cli")
_EXPECTED_ERRORS = (TileManagerError, typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError)
"""Errors that end a command without being a bug."""
_REFUSALS_MAX = 20


class DataConsole(Console):
    """The console for data. Rich would exit on a broken pipe; here the caller handles it."""

    def on_broken_pipe(self) -> None:
        """Re-raise the error."""
        raise  # noqa: PLE0704  # rich calls this while it handles the error


stdout = DataConsole(highlight=False)
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
"""For everything that is not data."""


@contextmanager
def open_installation(
    config_file: Path | None,
    listener: "ProgressListener | None" = None,
    *,
    clock: "Clock | None" = None,
) -> Iterator["Installation"]:
    """Open the installation for one command, with its log, and close it at the end."""
    with Installation(
        load_config(config_file),
        listener=listener or NULL_LISTENER,
        clock=clock or SystemClock(),
        log_console=stderr,
    ) as installation:
        try:
            yield installation
        except _EXPECTED_ERRORS:
            raise
        except Exception as error:
            _LOGGER.exception(
                "internal error: %s", type(error).__name__, extra={"kind": "cli.crashed"}
            )
            raise


def hold_cache(installation: "Installation", wait: str | None) -> "AbstractContextManager[None]":
    """Lock the cache; while another process holds it, name it and wait up to ``wait``."""
    from tileferry.entrypoints.cli.parsing import parse_wait

    return installation.hold_cache(
        wait_s=parse_wait(wait),
        on_wait=lambda error: stderr.print(
            f"waiting for up to {wait}: {printable(error.problem)}; Ctrl-C stops waiting"
        ),
    )


@contextmanager
def blame_option(name: str) -> Iterator[None]:
    """Attribute values rejected in this block to the option ``name``."""
    try:
        yield
    except InvalidValueError as error:
        raise evolve(error, field=name) from None


def print_json(schema: str, body: Mapping[str, Any]) -> None:
    """Print one JSON object; ``schema`` is the id of its versioned schema."""
    typer.echo(json.dumps({"schema": schema, **body}, ensure_ascii=False))


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
