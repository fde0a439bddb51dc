"""The names of settings: their paths, which of them are secret, and what a wrong one may mean."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import get_args, get_origin

import attrs
import typed_settings as ts

from tileferry.domain.errors import InvalidValueError

_ALIKE_MIN = 0.6


def unknown_setting(path: str, config: type[attrs.AttrsInstance]) -> InvalidValueError:
    """Say of a setting, by its path such as ``c6.budgt``, what it may have been meant to be."""
    table, names = _nearest_table(path.split("."), config)
    wrong = path.removeprefix(f"{table}.").split(".")[0]
    alike = get_close_matches(wrong, names, n=1, cutoff=_ALIKE_MIN)
    meant = f"did you mean {alike[0]}? " if alike else ""
    return InvalidValueError(
        field=path,
        value=wrong,
        problem="is not a setting",
        remedy=f"{meant}{table or 'the configuration'} has {', '.join(names)}",
    )


def setting_path(name: str, config: type[attrs.AttrsInstance]) -> str:
    """Return a setting's path, where a validator named it by its class: ``C6Config.budget``."""
    table, _, rest = name.partition(".")
    for item in attrs.fields(config):
        if getattr(item.type, "__name__", None) == table:
            return f"{item.name}.{rest}"
    return name


def is_plain_setting(path: str, config: type[attrs.AttrsInstance]) -> bool:
    """Tell whether what was given for a setting may be shown: it is known, and no secret."""
    kind: object = config
    for part in path.split("."):
        if not (isinstance(kind, type) and attrs.has(kind)):
            break  # an entry of a table whose names are free
        kind = {item.name: item.type for item in attrs.fields(kind)}.get(part)
    kinds = (kind, *get_args(kind))
    if kind is None or (isinstance(kind, type) and attrs.has(kind)):
        return False  # a whole table may hold a secret
    return not any(ts.Secret in (one, get_origin(one)) for one in kinds)


def _nearest_table(
    parts: Sequence[str], config: type[attrs.AttrsInstance]
) -> tuple[str, Sequence[str]]:
    """Follow a path as far as it goes; return where that is, and what is there."""
    followed: list[str] = []
    for part in parts:
        kinds = {item.name: item.type for item in attrs.fields(config)}
        inner = kinds.get(part)
        if not (isinstance(inner, type) and attrs.has(inner)):
            break
        config = inner
        followed.append(part)
    return ".".join(followed), [item.name for item in attrs.fields(config)]
