"""Lists settings with path, value, purpose and origin, and writes them as TOML."""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from textwrap import wrap
from typing import Any

import attrs
from attrs import frozen

from tileferry.domain.redaction import redact_likely_keys
from tileferry.entrypoints.config.fields import ABOUT, APP, EXAMPLE
from tileferry.entrypoints.config.origins import DEFAULT, SettingOrigins
from tileferry.entrypoints.config.sections import Config
from tileferry.entrypoints.config.setting_names import is_plain_setting, to_variable_name

HIDDEN = "***"
Plain = bool | int | float | str | list[Any] | dict[str, Any] | None


@frozen(kw_only=True)
class Setting:
    """One setting with its value and origin."""

    section: str
    """Empty for settings outside a section."""
    name: str
    value: Plain
    """The value as TOML has it; secrets are never included."""
    about: str
    example: Plain
    """An example value, for settings without a default."""
    is_secret: bool
    origin: str = DEFAULT

    @property
    def path(self) -> str:
        """The name of the setting in messages."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return to_variable_name(self.path)


def list_settings(config: Config, file: Path | None = None) -> Iterator[Setting]:
    """Yield every setting of a configuration loaded from ``file`` and the environment."""
    origins = SettingOrigins(file)
    for setting in _walk_settings(config, ""):
        # The only default that depends on other settings.
        value = config.source if setting.path == "c11.source" else setting.value
        if isinstance(value, str):
            value = redact_likely_keys(value)  # an address may have one
        yield attrs.evolve(setting, value=value, origin=origins.find(setting.path))


def _walk_settings(table: Any, section: str) -> Iterator[Setting]:
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
            value=HIDDEN if is_secret and value is not None else to_plain(value),
            about=item.metadata.get(ABOUT, ""),
            example=item.metadata.get(EXAMPLE),
            is_secret=is_secret,
        )
    for inner_section, inner in tables:  # in TOML, subtables follow the keys of their table
        yield from _walk_settings(inner, inner_section)


def to_plain(value: Any) -> Plain:
    """Return a value as TOML would hold it."""
    match value:
        case Enum():
            return str(value.value)
        case Path():
            return str(value)
        case list() | tuple():
            return [to_plain(item) for item in value]
        case Mapping():
            return {str(name): to_plain(item) for name, item in value.items()}
        case bool() | int() | float() | str() | None:
            return value
        case _:
            raise TypeError(f"cannot write a {type(value).__name__} as a setting")


_COLUMNS = 90
_HEAD = """\
# tileferry.toml: read from the user's configuration folder, then from the current folder or the
# file of --config, which overrides it. Environment variables override both, and options override
# them all.
# Each line shows the default, or an example if there is no default. Uncomment it to change it.
# `tileferry config show --origin` shows the values in effect; `tileferry doctor` checks them.
"""
_RETRY = """\
# Retry policies, one table for each category; `tileferry policy show` lists them.
# [tileferry.retry.KV_GET]
# max_attempts = 5
# base_delay = 0.5
"""
_AREAS = """\
# Names of areas: `--area derkachi` selects the bounding box W,S,E,N.
# [tileferry.areas]
# derkachi = "36.0,50.0,36.3,50.2"
"""
_OWN_TABLES = ("retry", "areas")
"""Tables shown by an example, because their keys are many or free."""


def format_settings(settings: Iterable[Setting], *, origin: bool) -> Iterator[str]:
    """Yield the effective settings as TOML that can be loaded again, except for secrets."""
    section: str | None = None
    for setting in settings:
        if _is_policy(setting) and setting.value is None:
            continue
        if setting.section != section:
            section = setting.section
            yield from () if setting.section == "" else ("",)
            yield _format_header(section)
        value = "(not set)" if setting.value is None else to_toml(setting.value)
        line = f"{'# ' if setting.value is None else ''}{setting.name} = {value}"
        yield f"{line}  # {setting.origin}" if origin else line


def build_template() -> str:
    """Return a configuration file with every setting explained and commented out."""
    lines = [_HEAD]
    section: str | None = None
    for setting in list_settings(Config()):
        if setting.path.split(".")[0] in _OWN_TABLES:
            continue
        if setting.section != section:
            section = setting.section
            lines.append(f"{_format_header(section)}\n")
        lines.append(_format_explanation(setting))
    return "\n".join([*lines, _RETRY, _AREAS])


def to_toml(value: Plain) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(to_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(k)} = {to_toml(v)}' for k, v in value.items())}}}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def _is_policy(setting: Setting) -> bool:
    return setting.section.startswith("retry.")


def _format_header(section: str) -> str:
    return f"[{APP}.{section}]" if section else f"[{APP}]"


def _format_explanation(setting: Setting) -> str:
    comment = "\n".join(f"# {line}" for line in wrap(setting.about, _COLUMNS))
    if setting.is_secret:
        return f"{comment}\n# This is a secret: set {setting.variable} in the environment.\n"
    value = setting.example if setting.value is None else setting.value
    return f"{comment}\n# {setting.name} = {to_toml(value)}\n"
