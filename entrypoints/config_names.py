"""A setting that does not exist: which one is meant, and which ones there are beside it."""

from collections.abc import Sequence
from difflib import get_close_matches

import attrs

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
