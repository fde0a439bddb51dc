"""The base of all errors, and the four kinds that any part may raise."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
from attrs import define

from tileferry.domain.errors.remedies import Remedy
from tileferry.domain.text import printable, quote_value

_LINE_CHARS_MAX = 1_000


def format_line(text: str) -> str:
    """Return a message of ours, which may quote untrusted text, as one printable line."""
    return printable(text, limit=_LINE_CHARS_MAX)


class TileManagerError(Exception):
    """Base of all errors that are raised on purpose."""

    @property
    def summary(self) -> str:
        """What failed, with which value, and why."""
        return super().__str__()

    @property
    def remedy(self) -> Remedy | str:
        """What to do about it; empty if nothing is known."""
        return ""

    def describe(self, wordings: Mapping[Remedy, str] = MappingProxyType({})) -> str:
        """Return the whole message, with remedies as a user interface words them."""
        remedy = self.remedy
        if isinstance(remedy, Remedy):
            remedy = wordings.get(remedy, remedy.value).format(error=self)
        return f"{self.summary}; {format_line(remedy)}" if remedy else self.summary

    def __str__(self) -> str:
        return self.describe()

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


@define(kw_only=True, eq=False)
class InvalidValueError(TileManagerError, ValueError):
    """Invalid input: a field, an argument, a setting or a file has a value that is not allowed."""

    field: str
    value: object
    problem: str
    remedy: Remedy | str = ""

    @property
    def summary(self) -> str:
        text = f"{printable(self.field)}: {format_line(self.problem)}"
        if self.value is not None:  # a missing value is not shown
            text += f" (got {quote_value(self.value)})"
        return text


@define(kw_only=True, eq=False)
class NotFoundError(TileManagerError, LookupError):
    """There is no run, partition, tile… with that name."""

    what: str
    name: str
    remedy: Remedy | str = ""

    @property
    def summary(self) -> str:
        return f"{self.what} {printable(self.name)} not found"


@define(kw_only=True, eq=False)
class InvalidStateError(TileManagerError):
    """The subject exists, but its state does not allow the operation."""

    subject: str
    problem: str
    remedy: Remedy | str = ""

    @property
    def summary(self) -> str:
        return f"{printable(self.subject)}: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class MisuseError(TileManagerError):
    """The calling program, a store or the installation is defective; no input is to blame."""

    what: str
    problem: str
    remedy: Remedy | str = ""

    @property
    def summary(self) -> str:
        return f"{printable(self.what)}: {format_line(self.problem)}"
