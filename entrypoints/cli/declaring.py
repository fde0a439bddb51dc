"""How commands are declared, and the options that all of them have.

What is declared is all that ``--help`` and the shell's completion need, so a module that declares
commands imports nothing heavy: what a command does is in ``running``, imported when it is run.
"""

from pathlib import Path
from typing import Annotated

import typer

_EXAMPLE_CHARS_MAX = 70
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration file.", dir_okay=False, exists=True
    ),
]


def group(text: str) -> typer.Typer:
    """Return a noun that takes verbs."""
    return typer.Typer(help=text, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


def single() -> typer.Typer:
    """Return a noun that is a command by itself."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)


def examples(*lines: str) -> str:
    """Return what stands below a command's help: lines that can be typed as they are."""
    title = "Examples:" if len(lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {_folded(line)}" for line in lines)])


def _folded(line: str) -> str:
    """Break a long line before its options, in a way that a shell takes: help has 80 columns."""
    begin, *options = line.split(" --")
    rows = [begin]
    for option in options:
        if len(rows[-1]) + len(option) > _EXAMPLE_CHARS_MAX:
            rows.append(f"  --{option}")
        else:
            rows[-1] += f" --{option}"
    return " \\\n  ".join(rows)
