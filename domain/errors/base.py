"""The base of all errors, and the four kinds that any part may raise."""

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import define

from tileferry.domain.text import printable, quote_value

_LINE_CHARS_MAX = 1_000


def format_line(text: str) -> str:
    """Return a sentence of our own that may quote text from outside."""
    return printable(text, limit=_LINE_CHARS_MAX)


class TileManagerError(Exception):
    """Base of all errors that tileferry raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own pickling loses keyword-only fields, and workers send errors home.
        kind = type(self)
        if not attrs.has(kind):
            return (kind, self.args)
        return (
            _rebuild,
            (kind, {item.name: getattr(self, item.name) for item in attrs.fields(kind)}),
        )


def _rebuild(kind: type[TileManagerError], fields: Mapping[str, Any]) -> TileManagerError:
    return kind(**fields)


def append_remedy(text: str, remedy: str) -> str:
    """Return a message that ends with what to do, if that is known."""
    return f"{text}; {format_line(remedy)}" if remedy else text


@define(kw_only=True, eq=False)
class InvalidValueError(TileManagerError, ValueError):
    """Invalid input: a field, an argument, a setting or a file has a value that is not allowed."""

    field: str
    value: object
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{printable(self.field)}: {format_line(self.problem)}"
        if self.value is not None:  # a missing value is not shown
            text += f" (got {quote_value(self.value)})"
        return append_remedy(text, self.remedy)


@define(kw_only=True, eq=False)
class NotFoundError(TileManagerError, LookupError):
    """There is no run, partition, tile… of that name."""

    what: str
    name: str
    remedy: str = ""

    def __str__(self) -> str:
        return append_remedy(f"{self.what} {printable(self.name)} not found", self.remedy)


@define(kw_only=True, eq=False)
class InvalidStateError(TileManagerError):
    """The subject exists, but its state does not allow the operation."""

    subject: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return append_remedy(f"{printable(self.subject)}: {format_line(self.problem)}", self.remedy)


@define(kw_only=True, eq=False)
class MisuseError(TileManagerError):
    """The calling program, a store or the installation is defective; no input is to blame."""

    what: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return append_remedy(f"{printable(self.what)}: {format_line(self.problem)}", self.remedy)
