"""``tileferry``: the operator's commands. Data goes to stdout, everything else to stderr."""

import io
import json
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from tileferry.domain.errors import TileManagerError
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.exits import ExitCode, exit_code_of

GROUPS = (
    "audit", "backfill", "cache", "coverage", "db", "download", "giveups", "ingest", "plan",
    "policy", "provider", "queue", "runs", "state", "upload", "worker",
)  # fmt: skip
"""Each command or group of commands, and the module that has it."""
ERROR_SCHEMA = "tileferry.error.v1"
_LINE_CHARS_MAX = 1_000


class LateGroup(TyperGroup):
    """Imports a group of commands when it is asked for: no command waits for what others need."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names."""
        return sorted([*super().list_commands(ctx), *GROUPS])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name."""
        if cmd_name not in GROUPS:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"tileferry.entrypoints.cli.commands.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name  # a group does not know its own, and the help would leave it out
        return command


app = typer.Typer(
    name="tileferry",
    help="Move satellite tiles between a provider and an offline cache, and lose none on the way.",
    cls=LateGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback would show the values of locals, secrets included
)


@app.callback()
def _tileferry() -> None:
    """Move satellite tiles between a provider and an offline cache, and lose none on the way."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error of ours becomes one line and its exit code."""
    for stream in (sys.stdout, sys.stderr):  # a terminal or a file of any encoding will do
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(arguments)
    except TileManagerError as error:
        if "--json" in (sys.argv[1:] if arguments is None else arguments):
            _print_error(error)
        _say(f"tileferry: {error}")
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        _say("tileferry: interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001  # whatever it is, the operator gets to know
        _say_crash(error)
        sys.exit(ExitCode.FATAL)


def _print_error(error: TileManagerError) -> None:
    """Print the one object that a script waits for. A command that has printed its own exits."""
    told = {"type": type(error).__name__, "message": str(error), "exit_code": exit_code_of(error)}
    typer.echo(json.dumps({"schema": ERROR_SCHEMA, "error": told}, ensure_ascii=False))


def _say(line: str) -> None:
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(line)


def _say_crash(error: Exception) -> None:
    for line in "".join(traceback.format_exception(error)).splitlines():
        _say(printable(line, limit=_LINE_CHARS_MAX))
    _say("tileferry: an internal error; please report the lines above")
