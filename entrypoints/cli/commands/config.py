"""``tileferry config``: the settings that count, and a file to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group

app = group("The configuration: which settings count, where from, and a file to begin with.")


@app.command(
    "show", epilog=examples("tileferry config show --origin", "tileferry config show --json")
)
def show_command(
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Tell where each value came from, if it was set.")
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show every setting as it counts now, in the form of the file. Secrets print as ***."""
    from tileferry.entrypoints.cli.running import config as running

    running.show(config, origin=origin, json=json)


@app.command("init", epilog=examples("tileferry config init", "tileferry config init other.toml"))
def init_command(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="The file to write.")
    ] = Path("tileferry.toml"),
    config: ConfigFile = None,  # noqa: ARG001  # for all commands; here there is nothing to read
    json: JsonFlag = False,
) -> None:
    """Write a file with every setting, each explained and none set. A file that is there stays."""
    from tileferry.entrypoints.cli.running import config as running

    running.init(file, json=json)
