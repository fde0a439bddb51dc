"""The configuration written down: what is set, or everything that could be."""

import json
from collections.abc import Iterable, Iterator
from textwrap import wrap

from tileferry.entrypoints.config.sections import APP, Config
from tileferry.entrypoints.config.settings import Plain, Setting, settings_of

_COLUMNS = 90
_HEAD = """\
# tileferry.toml: read from the folder where a command is started, or named with --config.
# The environment wins over this file, and a command's options win over both.
# Each line has the default, or an example where there is none: take the # away to change it.
# `tileferry config show --origin` tells which value counts, and `tileferry doctor` checks them.
"""
_RETRY = """\
# Retry policies, one table a category; `tileferry policy show` lists them all.
# [tileferry.retry.KV_GET]
# max_attempts = 5
# base_delay = 0.5
"""
_AREAS = """\
# Names for areas: `--area derkachi` stands for the box W,S,E,N.
# [tileferry.areas]
# derkachi = "36.0,50.0,36.3,50.2"
"""
_OWN_TABLES = ("retry", "areas")
"""Shown by an example: their names are many, or free."""


def shown(settings: Iterable[Setting], *, origin: bool) -> Iterator[str]:
    """Yield the lines of what counts; they can be read back, but for secrets."""
    section: str | None = None
    for setting in settings:
        if _is_policy(setting) and setting.value is None:
            continue
        if setting.section != section:
            section = setting.section
            yield from () if setting.section == "" else ("",)
            yield _table(section)
        value = "(not set)" if setting.value is None else in_toml(setting.value)
        line = f"{'# ' if setting.value is None else ''}{setting.name} = {value}"
        yield f"{line}  # {setting.origin}" if origin else line


def template() -> str:
    """Return a file that has every setting, each explained and none set."""
    lines = [_HEAD]
    section: str | None = None
    for setting in settings_of(Config()):
        if setting.path.split(".")[0] in _OWN_TABLES:
            continue
        if setting.section != section:
            section = setting.section
            lines.append(f"{_table(section)}\n")
        lines.append(_explained(setting))
    return "\n".join([*lines, _RETRY, _AREAS])


def in_toml(value: Plain) -> str:
    """Write a value."""
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(in_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(k)} = {in_toml(v)}' for k, v in value.items())}}}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def _is_policy(setting: Setting) -> bool:
    return setting.section.startswith("retry.")


def _table(section: str) -> str:
    return f"[{APP}.{section}]" if section else f"[{APP}]"


def _explained(setting: Setting) -> str:
    comment = "\n".join(f"# {line}" for line in wrap(setting.about, _COLUMNS))
    if setting.is_secret:
        return f"{comment}\n# It is a secret: set {setting.variable} in the environment.\n"
    value = setting.example if setting.value is None else setting.value
    return f"{comment}\n# {setting.name} = {in_toml(value)}\n"
