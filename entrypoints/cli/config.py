"""``tileferry config``: the settings that count, and a file to begin with."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tileferry.adapters.filesystem import write_file_atomically
from tileferry.domain.errors import AlreadyThereError
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.output import print_json, stdout
from tileferry.entrypoints.config import CONFIG_FILE, load_config
from tileferry.entrypoints.config.settings import (
    Setting,
    build_template,
    format_settings,
    list_settings,
)

app = declare_group(
    "The configuration: which settings count, where from, and a file to begin with."
)


@app.command(
    "show", epilog=format_examples("tileferry config show --origin", "tileferry config show --json")
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
    from tileferry.entrypoints.cli import config as running

    running.show_config(config, origin=origin, json=json)


@app.command(
    "init", epilog=format_examples("tileferry config init", "tileferry config init other.toml")
)
def init_command(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="The file to write.")
    ] = Path("tileferry.toml"),
    config: ConfigFile = None,  # noqa: ARG001  # for all commands; here there is nothing to read
    json: JsonFlag = False,
) -> None:
    """Write a file with every setting, each explained and none set. A file that is there stays."""
    from tileferry.entrypoints.cli import config as running

    running.write_config_template(file, json=json)


def show_config(file: Path | None, *, origin: bool, json: bool) -> None:
    """Show what counts."""
    settings = list(list_settings(load_config(file), file))
    if json:
        source = file or Path(CONFIG_FILE)
        body = {
            "file": str(source) if source.exists() else None,
            "settings": [_setting_to_json(setting) for setting in settings],
        }
        print_json("tileferry.config.show.v1", body)
        return
    for line in format_settings(settings, origin=origin):
        stdout.print(line, markup=False, soft_wrap=True)


def _setting_to_json(setting: Setting) -> dict[str, object]:
    return {
        "path": setting.path,
        "value": setting.value,
        "origin": setting.origin,
        "variable": setting.variable,
    }


def write_config_template(file: Path, *, json: bool) -> None:
    """Begin a file."""
    if os.path.lexists(file):  # also a link that leads nowhere
        raise AlreadyThereError(
            path=str(file), remedy="name another file, or move this one away first"
        )
    write_file_atomically(file.absolute(), build_template().encode())
    if json:
        print_json("tileferry.config.init.v1", {"file": str(file)})
    else:
        stdout.print(f"{file} is there, with every setting explained. Next: tileferry doctor")
