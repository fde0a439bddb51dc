"""The head of the family, and the one error that every part raises: a value that cannot be."""

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import define

from tileferry.domain.text import printable, quote_value

_LINE_CHARS_MAX = 1_000


def format_line(text: str) -> str:
    """Return a sentence of our own, in which somebody else's words may stand."""
    return printable(text, limit=_LINE_CHARS_MAX)


class TileManagerError(Exception):
    """Parent of the family."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only fields do not survive Exception's own pickling, and workers send errors home.
        kind = type(self)
        if not attrs.has(kind):
            return (kind, self.args)
        return (
            _rebuild,
            (kind, {item.name: getattr(self, item.name) for item in attrs.fields(kind)}),
        )


def _rebuild(kind: type[TileManagerError], fields: Mapping[str, Any]) -> TileManagerError:
    return kind(**fields)


@define(kw_only=True, eq=False)
class InvalidValueError(TileManagerError, ValueError):
    """A value that cannot be worked with, in a field that the message names."""

    field: str
    value: object
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{printable(self.field)}: {format_line(self.problem)}"
        if self.value is not None:  # nothing was given: there is nothing to show
            text += f" (got {quote_value(self.value)})"
        return f"{text}; {format_line(self.remedy)}" if self.remedy else text
