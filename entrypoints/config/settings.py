"""Every setting as a line: its path, its value, what it is for, and where the value came from."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from tileferry.entrypoints.config.about import ABOUT, EXAMPLE
from tileferry.entrypoints.config.loading import CONFIG_FILE
from tileferry.entrypoints.config.names import is_plain_setting, variable_of
from tileferry.entrypoints.config.sections import APP, Config

HIDDEN = "***"
DEFAULT = "default"
Plain = bool | int | float | str | list[Any] | dict[str, Any] | None


@frozen(kw_only=True)
class Setting:
    """One line of the configuration."""

    section: str
    """Empty for what stands at the top."""
    name: str
    value: Plain
    """As it would be written; a secret never is."""
    about: str
    example: Plain
    """What it may look like, where it has no default."""
    is_secret: bool
    origin: str = DEFAULT

    @property
    def path(self) -> str:
        """How messages name it."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return variable_of(self.path)


def settings_of(config: Config, file: Path | None = None) -> Iterator[Setting]:
    """Yield every setting of a configuration that was loaded from a file and the environment."""
    source = file or Path(CONFIG_FILE)
    tables = _tables(source)
    for setting in _below(config, ""):
        # The one default that follows from other settings.
        value = config.source if setting.path == "c11.source" else setting.value
        yield attrs.evolve(setting, value=value, origin=_origin(setting.path, source, tables))


def origin_of(path: str, file: Path | None = None) -> str:
    """Say where a setting's value came from: its variable, the file, or nowhere."""
    source = file or Path(CONFIG_FILE)
    return _origin(path, source, _tables(source))


def _below(table: Any, section: str) -> Iterator[Setting]:
    tables: list[Any] = []
    for item in attrs.fields(type(table)):
        value = getattr(table, item.name)
        if attrs.has(type(value)):
            tables.append((f"{section}.{item.name}" if section else item.name, value))
            continue
        path = f"{section}.{item.name}" if section else item.name
        is_secret = not is_plain_setting(path, Config)
        yield Setting(
            section=section,
            name=item.name,
            value=HIDDEN if is_secret and value is not None else plain(value),
            about=item.metadata.get(ABOUT, ""),
            example=item.metadata.get(EXAMPLE),
            is_secret=is_secret,
        )
    for inner_section, inner in tables:  # a file has them after the lines of its own table
        yield from _below(inner, inner_section)


def plain(value: Any) -> Plain:
    """Return a value as files have it."""
    match value:
        case Enum():
            return str(value.value)
        case Path():
            return str(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case bool() | int() | float() | str() | None:
            return value
        case _:
            raise TypeError(f"no setting has a {type(value).__name__}")


def _origin(path: str, file: Path, tables: Mapping[str, Any]) -> str:
    if variable_of(path) in os.environ:
        return variable_of(path)
    found: Any = tables
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return DEFAULT
        found = found[part]
    return str(file)


def _tables(file: Path) -> Mapping[str, Any]:
    """Return what a file sets; that it can be read is known, as it was loaded."""
    try:
        with file.open("rb") as content:
            tables: Mapping[str, Any] = tomllib.load(content).get(APP, {})
    except FileNotFoundError:
        return {}
    return tables
