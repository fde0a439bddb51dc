"""Reports the failure of a command: one line on stderr, JSON if requested, and an exit code."""

import errno
import json
import os
import sys
import traceback
from typing import Any, cast

import typer
from rich.console import Console
from typer.exceptions import TyperException

from tileferry.domain.errors import TileManagerError
from tileferry.domain.text import format_error, printable
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.cli.tree import CommandInterrupted, OutputClosed

ERROR_SCHEMA = "tileferry.error.v1"
_LINE_CHARS_MAX = 1_000


def report_failure(error: BaseException, *, as_json: bool) -> ExitCode:
    """Report the error and return the exit code."""
    if isinstance(error, TileManagerError):
        code = get_exit_code(error)
        if as_json:
            _print_error(error_to_json(error, code))
        _print_line(f"tileferry: {describe_error(error)}")
        return code
    if isinstance(error, CommandInterrupted | KeyboardInterrupt | typer.Abort):
        _print_line("tileferry: interrupted")
        return ExitCode.INTERRUPTED
    if isinstance(error, TyperException):
        if as_json:
            _print_error(_build_error_body("UsageError", error.format_message(), ExitCode.USAGE))
        cast("Any", error).show()  # all of these have it; it includes the command's usage
        return ExitCode.USAGE
    if isinstance(error, OutputClosed):
        _discard_stdout()
        return ExitCode.FATAL
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _discard_stdout()
        _print_line(
            f"tileferry: the disk is full: {format_error(error)}; free some space, then re-run"
        )
        return ExitCode.FATAL
    for line in "".join(traceback.format_exception(error)).splitlines():
        _print_line(printable(line, limit=_LINE_CHARS_MAX))
    _print_line("tileferry: internal error; please report the lines above")
    return ExitCode.FATAL


def _discard_stdout() -> None:
    """Discard further output; else the interpreter reports the closed pipe again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_to_json(error: BaseException, code: ExitCode) -> dict[str, Any]:
    """Return the error object that all commands share."""
    match error:
        case TileManagerError():
            message = describe_error(error)  # escaped and complete
        case KeyboardInterrupt():
            message = "interrupted"
        case _:
            message = format_error(error)
    return _build_error_body(type(error).__name__, message, code)


def _build_error_body(kind: str, message: str, code: ExitCode) -> dict[str, Any]:
    return {"type": kind, "message": message, "exit_code": code}


def _print_error(body: dict[str, Any]) -> None:
    """Print the error as the command's JSON object. Commands that printed one exit on their own."""
    typer.echo(json.dumps({"schema": ERROR_SCHEMA, "error": body}, ensure_ascii=False))


def _print_line(line: str) -> None:
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(line)
