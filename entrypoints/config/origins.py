"""Where settings come from: the user's file, then the project's file, then the environment."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from tileferry.entrypoints.config.fields import APP
from tileferry.entrypoints.config.setting_names import to_variable_name

CONFIG_FILE = "tileferry.toml"
DEFAULT = "default"


def get_user_config_file() -> Path:
    """Return the path of the user's configuration file, whether it exists or not."""
    return user_config_path(APP) / CONFIG_FILE


def list_config_files(file: Path | None = None) -> Sequence[Path]:
    """Return the files that are read if they exist; a later one overrides the earlier ones.

    ``file`` replaces ``tileferry.toml`` in the working directory.
    """
    return (get_user_config_file(), file or Path(CONFIG_FILE))


def find_existing_files(file: Path | None = None) -> Sequence[Path]:
    """Return the configuration files that exist, in the order in which they are read."""
    # os.path, because Path.exists raises if a folder on the way cannot be read
    return [path for path in list_config_files(file) if os.path.exists(path)]  # noqa: PTH110


def find_origin(path: str, file: Path | None = None) -> str:
    """Return where the value of a setting came from: its variable, a file, or the default."""
    return SettingOrigins(file).find(path)


class SettingOrigins:
    """The origins of all settings of a configuration that was loaded before."""

    def __init__(self, file: Path | None = None) -> None:
        self._tables = [(source, _read_tables(source)) for source in find_existing_files(file)]

    def find(self, path: str) -> str:
        """Return where the value of a setting came from: its variable, a file, or the default."""
        if to_variable_name(path) in os.environ:
            return to_variable_name(path)
        for source, tables in reversed(self._tables):
            if _has_path(tables, path):
                return str(source)
        return DEFAULT


def _has_path(tables: Mapping[str, Any], path: str) -> bool:
    found: Any = tables
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


def _read_tables(file: Path) -> Mapping[str, Any]:
    with file.open("rb") as content:
        tables: Mapping[str, Any] = tomllib.load(content).get(APP, {})
    return tables
