"""Names of settings: paths, variables, which are secret, and suggestions for unknown names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeGuard, get_args, get_origin

import attrs

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config.fields import Secret

ENV_PREFIX = "TILEFERRY_"
PROVIDER_KEY_VARIABLE = "TILEFERRY_PROVIDER_API_KEY"
"""The API key of the reference provider: an environment variable that is not a setting."""
_ALIKE_MIN = 0.6
_HIDDEN = "***"


def to_variable_name(path: str) -> str:
    """Return the environment variable of a setting."""
    return ENV_PREFIX + path.upper().replace(".", "_")


def list_setting_paths(config: type[attrs.AttrsInstance]) -> Iterator[str]:
    """Yield the path of every setting."""
    for item in attrs.fields(config):
        if is_table(item.type):
            yield from (f"{item.name}.{path}" for path in list_setting_paths(item.type))
        else:
            yield item.name


def find_unknown_variables(
    environment: Iterable[str], paths: Iterable[str]
) -> Mapping[str, str | None]:
    """Return the ``TILEFERRY_…`` variables that are not read, each with a suggestion.

    ``paths`` are those of all settings.
    """
    known = [
        name.removeprefix(ENV_PREFIX)
        for name in (*map(to_variable_name, paths), PROVIDER_KEY_VARIABLE)
    ]
    found: dict[str, str | None] = {}
    for name in sorted(environment):
        own = name.removeprefix(ENV_PREFIX)
        if name.startswith(ENV_PREFIX) and own not in known:
            alike = get_close_matches(own.upper(), known, n=1, cutoff=_ALIKE_MIN)
            found[name] = f"{ENV_PREFIX}{alike[0]}" if alike else None
    return found


def explain_unknown_setting(path: str, config: type[attrs.AttrsInstance]) -> InvalidValueError:
    """Return an error for an unknown path such as ``c6.budgt``, with a suggestion."""
    table, names = _find_nearest_table(path.split("."), config)
    wrong = path.removeprefix(f"{table}.").split(".")[0]
    alike = get_close_matches(wrong, names, n=1, cutoff=_ALIKE_MIN)
    meant = f"did you mean {alike[0]}? " if alike else ""
    return InvalidValueError(
        field=path,
        value=wrong,
        problem="is not a setting",
        remedy=f"{meant}{table or 'the configuration'} has {', '.join(names)}",
    )


def explain_misplaced_setting(
    name: str, value: object, config: type[attrs.AttrsInstance], *, app: str, file: str
) -> InvalidValueError:
    """Return an error for a setting outside the ``tileferry`` table, with its correct place."""
    field, remedy = name, f"move it to [{app}] or to one of its tables"
    if isinstance(value, Mapping):
        field, remedy = f"[{name}]", _suggest_table(name, value, _list_tables(config), app)
    return InvalidValueError(field=field, value=None, problem=f"unknown in {file}", remedy=remedy)


def _suggest_table(name: str, value: Iterable[str], tables: Sequence[str], app: str) -> str:
    match get_close_matches(name, [app, *tables], n=1, cutoff=_ALIKE_MIN):
        case []:
            return f"the tables are {', '.join(f'[{app}.{table}]' for table in tables)}"
        case [found] if found != app:
            return f"write [{app}.{found}]"
        case _:
            inner = next((f".{table}" for table in value if table in tables), "")
            return f"write [{app}{inner}]"


def _list_tables(config: type[attrs.AttrsInstance]) -> Sequence[str]:
    kinds = {item.name: item.type for item in attrs.fields(config)}
    return [name for name, kind in kinds.items() if get_origin(kind) is dict or is_table(kind)]


def explain_invalid_setting(
    error: InvalidValueError, table: str, config: type[attrs.AttrsInstance], name: str
) -> InvalidValueError:
    """Return the error of a validator with the path of the setting, and its value if it is plain.

    ``name`` is that of the class by which validators name the settings of a table.
    """
    path = error.field
    if path.startswith(f"{name}."):
        path = join_path(table, path.removeprefix(f"{name}."))
    value = error.value if is_plain_setting(path, config) else _HIDDEN
    return attrs.evolve(error, field=path, value=value)


def join_path(table: str, name: str) -> str:
    """Return the path of a setting in a table."""
    return f"{table}.{name}" if table else name


def is_table(kind: object) -> TypeGuard[type[attrs.AttrsInstance]]:
    """Return whether a setting of this type is a table of settings."""
    return isinstance(kind, type) and attrs.has(kind)


def is_plain_setting(path: str, config: type[attrs.AttrsInstance]) -> bool:
    """Return whether the value of a setting may be shown: the setting is known and not secret."""
    kind: object = config
    for part in path.split("."):
        if not is_table(kind):
            break  # an entry of a table with free names
        kind = {item.name: item.type for item in attrs.fields(kind)}.get(part)
    kinds = (kind, *get_args(kind))
    if kind is None or is_table(kind):
        return False  # a whole table may hold a secret
    return Secret not in kinds


def _find_nearest_table(
    parts: Sequence[str], config: type[attrs.AttrsInstance]
) -> tuple[str, Sequence[str]]:
    """Follow a path as far as it exists; return the table's path and its names."""
    followed: list[str] = []
    for part in parts:
        kinds = {item.name: item.type for item in attrs.fields(config)}
        inner = kinds.get(part)
        if not is_table(inner):
            break
        config = inner
        followed.append(part)
    return ".".join(followed), [item.name for item in attrs.fields(config)]
