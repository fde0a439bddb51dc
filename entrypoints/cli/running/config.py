"""The configuration, shown and begun."""

import os
from pathlib import Path

from tileferry.adapters.filesystem import write_whole_file
from tileferry.domain.errors import AlreadyThereError
from tileferry.entrypoints.cli.output import people, print_json
from tileferry.entrypoints.config import CONFIG_FILE, load_config
from tileferry.entrypoints.config.settings import Setting, settings_of
from tileferry.entrypoints.config.toml import shown, template


def show(file: Path | None, *, origin: bool, json: bool) -> None:
    """Show what counts."""
    settings = list(settings_of(load_config(file), file))
    if json:
        source = file or Path(CONFIG_FILE)
        body = {
            "file": str(source) if source.exists() else None,
            "settings": [_object(setting) for setting in settings],
        }
        print_json("tileferry.config.show.v1", body)
        return
    for line in shown(settings, origin=origin):
        people.print(line, markup=False, soft_wrap=True)


def _object(setting: Setting) -> dict[str, object]:
    return {
        "path": setting.path,
        "value": setting.value,
        "origin": setting.origin,
        "variable": setting.variable,
    }


def init(file: Path, *, json: bool) -> None:
    """Begin a file."""
    if os.path.lexists(file):  # also a link that leads nowhere
        raise AlreadyThereError(
            path=str(file), remedy="name another file, or move this one away first"
        )
    write_whole_file(file.absolute(), template().encode())
    if json:
        print_json("tileferry.config.init.v1", {"file": str(file)})
    else:
        people.print(f"{file} is there, with every setting explained. Next: tileferry doctor")
