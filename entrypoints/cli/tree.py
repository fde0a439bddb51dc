"""The command tree: every group with its summary, in the order an operator needs them."""

import errno
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from tileferry.entrypoints.cli.command_group import HelpGroup

CHAPTERS: Mapping[str, Mapping[str, str]] = {
    "Before the flight": {
        "coverage": "Show what the provider has in an area, without downloading it.",
        "plan": "Show what a download would fetch and evict, and whether it fits.",
        "download": "Download areas for a flight. Re-run to resume.",
        "cache": "Inspect, verify, prune, compact, export and import the tile cache.",
        "pack": "Carry the tiles of a flight to another machine, signed and verified.",
        "push": "Send another machine what it lacks of a flight, over ssh. Re-run to resume.",
        "flight": "List, report, pin, expire and remove flights.",
    },
    "After the flight": {
        "ingest": "Store captured tiles in the cache, ready for upload.",
        "upload": "Upload the tiles that a flight captured. Re-run to resume.",
        "giveups": "Review tiles whose upload was given up; print the SQL to reopen them.",
    },
    "Queued work": {
        "runs": "List, explain, submit, cancel and retry runs.",
        "worker": "Process queued runs. Start as many workers as you like.",
        "queue": "Show the queue, by source.",
        "state": "Inspect partitions; retry or retire failed ones.",
        "backfill": "Plan and apply runs for a range of dates.",
    },
    "Audit log and retry policies": {
        "audit": "Read, verify and replay the audit log.",
        "policy": "Show, explain, simulate and tune retry policies.",
    },
    "Installation": {
        "serve": "Serve the cache as a map, and the console, to browsers and ground stations.",
        "doctor": "Check this installation, and say how to fix what is wrong.",
        "config": "Show the effective settings, or write a configuration template.",
        "db": "Upgrade the schema, start and stop the embedded server, or open psql.",
        "backup": "Create, verify and restore backups of the whole installation.",
        "provider": "Run the reference provider, with faults on request.",
        "demo": "Play an operator's day: flaky provider, power loss, no lost tile.",
    },
}
"""Each name is a module of this package."""
NOUNS = {noun: summary for chapter in CHAPTERS.values() for noun, summary in chapter.items()}


class CommandInterrupted(Exception):  # noqa: N818  # not an error
    """A command was interrupted and did not handle it."""


class OutputClosed(Exception):  # noqa: N818  # as above
    """The reader of our output has closed the pipe."""


class CommandTree(HelpGroup):
    """Imports a command's module on demand, so that no command waits for the imports of others."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # signature of the base class
        return list(NOUNS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # as above
        if cmd_name not in NOUNS:
            return None
        module = import_module(f"tileferry.entrypoints.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name  # a group does not know its own name, which the help shows
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; suggest a similar one if it does not exist."""
        try:
            return super().resolve_command(ctx, args)
        except TyperException as error:
            alike = get_close_matches(args[0], NOUNS, n=1)
            error.message += f" Did you mean '{alike[0]}'?" if alike else ""
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run a command; report an interrupt that it did not handle itself."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise CommandInterrupted from None
        except OSError as error:  # typer would exit with its own code
            if error.errno != errno.EPIPE:
                raise
            raise OutputClosed from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # as above
        """Write the summaries of all groups without importing their modules."""
        widest = max(map(len, NOUNS))
        for chapter, nouns in CHAPTERS.items():
            with formatter.section(chapter):
                formatter.write_dl([(noun.ljust(widest), text) for noun, text in nouns.items()])


APP_NAME = "tileferry"
"""Shown in the help, independent of the program file's name."""

app = typer.Typer(
    name=APP_NAME,
    cls=CommandTree,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich panels take longer to import than the rest of the help
    pretty_exceptions_enable=False,  # a traceback would show the values of locals, secrets included
    epilog="\b\nStart with `tileferry doctor`. `tileferry COMMAND --help` shows examples.",
)


def _print_version(asked: bool) -> None:  # noqa: FBT001  # signature of typer callbacks
    if asked:
        from importlib.metadata import version  # imported late to keep the help fast

        typer.echo(f"{APP_NAME} {version(APP_NAME)}")
        raise typer.Exit


@app.callback()
def _tileferry(
    *,
    version: Annotated[  # handled by its callback
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Move satellite tiles between a provider and an offline cache."""


def iter_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with the words of its name."""
    root = typer.main.get_command(app)
    context = root.make_context(APP_NAME, [], resilient_parsing=True)
    yield from _iter_commands_below((), root, context)


def _iter_commands_below(
    words: tuple[str, ...], command: Any, context: Any
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(command, TyperGroup):
        yield words, command
        return
    for name in command.list_commands(context):
        yield from _iter_commands_below((*words, name), command.get_command(context, name), context)
