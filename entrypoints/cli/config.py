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
    from tileferry.entrypoints.config import load_config
    from tileferry.entrypoints.config.origins import find_existing_files, list_config_files
    from tileferry.entrypoints.config.settings import format_settings, list_settings

    settings = list(list_settings(load_config(config), config))
    if json:
        found = find_existing_files(config)
        user_file, file = (
            str(path) if path in found else None for path in list_config_files(config)
        )
        body = {
            "file": file,
            "user_file": user_file,
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
    "init", epilog=format_examples("tileferry config init", "tileferry config init --user")
)
def init_command(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", dir_okay=False, help="File to write (default: tileferry.toml)."
        ),
    ] = None,
    user: Annotated[
        bool,
        typer.Option("--user", help="Write the user's own file, which applies in every folder."),
    ] = False,
    config: ConfigFile = None,  # noqa: ARG001  # accepted by all commands; unused here
    json: JsonFlag = False,
) -> None:
    """Write a template: every setting, explained. Never overwrites a file."""
    from tileferry.adapters.filesystem import write_file_atomically
    from tileferry.domain.errors import AlreadyThereError
    from tileferry.entrypoints.cache_session import make_folder
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.config.loader import check_environment
    from tileferry.entrypoints.config.origins import CONFIG_FILE, get_user_config_file
    from tileferry.entrypoints.config.settings import build_template

    check_environment()
    if user and file is not None:
        raise typer.BadParameter("give either FILE or --user")
    target = get_user_config_file() if user else file or Path(CONFIG_FILE)
    if os.path.lexists(target):  # also a dangling link
        raise AlreadyThereError(
            path=str(target), remedy="choose another name, or move this file away first"
        )
    if user:
        make_folder(target.parent, setting="XDG_CONFIG_HOME")
    write_file_atomically(target.absolute(), build_template().encode())
    if json:
        print_json("tileferry.config.init.v1", {"file": str(target)})
    else:
        stdout.print(f"Wrote {target}. Next: tileferry doctor", soft_wrap=True)
