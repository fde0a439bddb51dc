"""Output of commands: one JSON object with a versioned schema, or text for people.

What prints for people is imported when it is used: JSON needs no rich.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from attrs import evolve

from tileferry.domain.errors import InvalidValueError, TileManagerError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.text import printable
from tileferry.entrypoints.config import load_config

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tileferry.application.ports import Clock
    from tileferry.application.ports.progress import ProgressListener

with import_on_call(globals()):
    from tileferry.adapters.system import SystemClock
    from tileferry.application.ports.progress import NULL_LISTENER
    from tileferry.entrypoints.cli.consoles import stderr, stdout
    from tileferry.entrypoints.cli.tables import build_facts_table, print_refusals
    from tileferry.entrypoints.installation import Installation

__all__ = [
    "blame_option",
    "build_facts_table",
    "hold_cache",
    "open_installation",
    "print_json",
    "print_refusals",
    "stderr",
    "stdout",
]
_LOGGER = logging.getLogger("tileferry.cli")
_EXPECTED_ERRORS = (TileManagerError, typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError)
"""Errors that end a command without being a bug."""


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
