"""Converts values from files and variables to the declared types of settings."""

from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from tileferry.entrypoints.config.fields import Secret

_LIST_SEPARATOR = ":"
"""Between the items of a list in a variable."""
_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


def convert_value(value: Any, kind: Any, folder: Path) -> Any:
    """Return a value in a type that a setting has; raise ``ValueError`` if it cannot be.

    A relative path starts at ``folder``. ``~`` is expanded: no shell does it in a file or in the
    environment of a service.
    """
    inner = [one for one in get_args(kind) if one is not NoneType]
    match get_origin(kind):
        case None:
            return _convert_scalar(value, kind, folder)
        case origin if origin is list:
            items = value.split(_LIST_SEPARATOR) if isinstance(value, str) else value
            _check(isinstance(items, list))
            return [convert_value(item, inner[0], folder) for item in items]
        case origin if origin is dict:
            _check(isinstance(value, dict))
            return {name: convert_value(item, inner[1], folder) for name, item in value.items()}
        case _:  # or None, which a file cannot express
            return convert_value(value, inner[0], folder)


def _convert_scalar(value: Any, kind: Any, folder: Path) -> Any:
    _check(not isinstance(value, list | dict))
    if kind is bool:
        word = str(value).lower()
        _check(word in _WORDS)
        return _WORDS[word]
    _check(not isinstance(value, bool))
    if kind is Path:
        return _resolve_path(str(value), folder)
    if issubclass(kind, Secret | Enum):
        _check(isinstance(value, str))
    if kind is int:
        _check(not isinstance(value, float) or value.is_integer())
    return kind(str(value) if kind is str else value)


def _resolve_path(text: str, folder: Path) -> Path:
    try:
        return (folder / Path(text).expanduser()).resolve()
    except RuntimeError as error:  # no such user
        raise ValueError(str(error)) from error


def _check(holds: bool) -> None:  # noqa: FBT001  # its only argument
    if not holds:
        raise ValueError
