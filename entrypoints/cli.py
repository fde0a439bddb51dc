"""``tileferry``: the operator's commands. Data goes to stdout, everything else to stderr."""

import sys

import typer
from rich.console import Console

from tileferry.domain.errors import TileManagerError
from tileferry.entrypoints.cache_commands import app as cache_app
from tileferry.entrypoints.database_commands import app as database_app
from tileferry.entrypoints.exits import ExitCode, exit_code_of

app = typer.Typer(
    name="tileferry",
    help="Move satellite tiles between a provider and an offline cache, and lose none on the way.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback would show the values of locals, secrets included
)
app.add_typer(database_app)
app.add_typer(cache_app)


def main() -> None:
    """Run the command line; every error of ours becomes one line and its exit code."""
    try:
        app()
    except TileManagerError as error:
        _say(f"tileferry: {error}")
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        _say("tileferry: interrupted")
        sys.exit(ExitCode.INTERRUPTED)


def _say(line: str) -> None:
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(line)


if __name__ == "__main__":
    main()
