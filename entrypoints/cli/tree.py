"""The tree of commands: every noun, with what it is for, in an operator's order."""

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
        "coverage": "Show what the provider has in an area, without fetching any of it.",
        "plan": "Say what a download would fetch, take and evict, and whether it fits.",
        "download": "Download an area for a flight. Re-run to resume.",
        "cache": "The tile cache: what it holds and whether it is sound.",
    },
    "After the flight": {
        "ingest": "Take the tiles that a flight captured into the cache, to be uploaded.",
        "upload": "Upload what a flight captured. Run again, it sends what is left.",
        "giveups": "Tiles whose upload was given up: a human decides about them.",
    },
    "Work that is queued": {
        "runs": "Runs: what is queued, under way and done, why, and what to do about it.",
        "worker": "Take runs from the queue and carry them out.",
        "queue": "The queue of runs, source by source.",
        "state": "Partitions: what is known of each, and your word on the ones that failed.",
        "backfill": "Many dates of a query at once: plan them, look at the plan, apply it.",
    },
    "What was decided, and why": {
        "audit": "The audit log: what was retried and why, and whether the log can be trusted.",
        "policy": "The retry policies: what is set, what it means, and what another would do.",
    },
    "The installation": {
        "doctor": "Check this installation, and say how to fix what is wrong.",
        "config": "The configuration: which settings count, where from, and a file to begin with.",
        "db": "The database: its schema and its state.",
        "provider": "The reference provider: serves tiles, and misbehaves when told to.",
        "demo": "Play an operator's day: a bad provider, a lost laptop, and not one lost tile.",
    },
}
"""Each is the module of that name in ``commands``."""
NOUNS = {noun: summary for chapter in CHAPTERS.values() for noun, summary in chapter.items()}


class CommandInterrupted(Exception):  # noqa: N818  # not an error
    """Somebody ended a command, and it had nothing to say to that."""


class OutputClosed(Exception):  # noqa: N818  # as above
    """Whoever read our output has gone."""


class CommandTree(HelpGroup):
    """Imports a noun when it is asked for: no command waits for what others need."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # as the base class has it
        """Return all names."""
        return list(NOUNS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # as above
        """Return a command by its name."""
        if cmd_name not in NOUNS:
            return None
        module = import_module(f"tileferry.entrypoints.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name  # a group does not know its own, and the help would leave it out
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a noun; for one that there is not, say which may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except TyperException as error:
            alike = get_close_matches(args[0], NOUNS, n=1)
            error.message += f" Did you mean '{alike[0]}'?" if alike else ""
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run a command. One that is interrupted and has not told so itself is told of."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise CommandInterrupted from None
        except OSError as error:  # typer would end with a code that is none of ours
            if error.errno != errno.EPIPE:
                raise
            raise OutputClosed from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # as above
        """Write the chapters; no noun needs to be imported for that."""
        widest = max(map(len, NOUNS))
        for chapter, nouns in CHAPTERS.items():
            with formatter.section(chapter):
                formatter.write_dl([(noun.ljust(widest), text) for noun, text in nouns.items()])


APP_NAME = "tileferry"
"""However it was started."""

app = typer.Typer(
    name=APP_NAME,
    cls=CommandTree,
    no_args_is_help=True,
    rich_markup_mode=None,  # panels take longer to import than all the rest of the help
    pretty_exceptions_enable=False,  # a traceback would show the values of locals, secrets included
    epilog="\b\nBegin with `tileferry doctor`; `tileferry COMMAND --help` has examples.",
)


def _print_version(asked: bool) -> None:  # noqa: FBT001  # as typer calls it
    if asked:
        from importlib.metadata import version  # the help must not wait for it

        typer.echo(f"{APP_NAME} {version(APP_NAME)}")
        raise typer.Exit


@app.callback()
def _tileferry(
    *,
    version: Annotated[  # its callback does it
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Move satellite tiles between a provider and an offline cache, and lose none on the way."""


def iter_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that can be run, with the words that name it."""
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
