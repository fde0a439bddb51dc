"""``tileferry config``: the effective settings, and a template for the file."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)

app = declare_group("Show the effective settings, or write a configuration template.")


@app.command(
    "show", epilog=format_examples("tileferry config show --origin", "tileferry config show --json")
)
def show_command(
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show where each value comes from.")
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show every setting in the file's format. Secrets are shown as ***."""
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.config import CONFIG_FILE, load_config
    from tileferry.entrypoints.config.settings import format_settings, list_settings

    settings = list(list_settings(load_config(config), config))
    if json:
        source = config or Path(CONFIG_FILE)
        body = {
            "file": str(source) if source.exists() else None,
            "settings": [
                {
                    "path": setting.path,
                    "value": setting.value,
                    "origin": setting.origin,
                    "variable": setting.variable,
                }
                for setting in settings
            ],
        }
        print_json("tileferry.config.show.v1", body)
        return
    for line in format_settings(settings, origin=origin):
        stdout.print(line, markup=False, soft_wrap=True)


@app.command(
    "init", epilog=format_examples("tileferry config init", "tileferry config init other.toml")
)
def init_command(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="File to write.")
    ] = Path("tileferry.toml"),
    config: ConfigFile = None,  # noqa: ARG001  # accepted by all commands; unused here
    json: JsonFlag = False,
) -> None:
    """Write a template: every setting, explained. Never overwrites a file."""
    from tileferry.adapters.filesystem import write_file_atomically
    from tileferry.domain.errors import AlreadyThereError
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.config.settings import build_template

    if os.path.lexists(file):  # also a dangling link
        raise AlreadyThereError(
            path=str(file), remedy="choose another name, or move this file away first"
        )
    write_file_atomically(file.absolute(), build_template().encode())
    if json:
        print_json("tileferry.config.init.v1", {"file": str(file)})
    else:
        stdout.print(f"Wrote {file}. Next: tileferry doctor")
