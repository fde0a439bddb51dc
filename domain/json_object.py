"""An object of JSON, read field by field: a refusal names the field that is wrong, by its place."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from enum import StrEnum
from typing import TypeVar

from attrs import frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.checks import date_of, moment_of
from tileferry.domain.errors import InvalidValueError

Kind = TypeVar("Kind", str, int, bool)
Member = TypeVar("Member", bound=StrEnum)
_NAMES = {str: "text", int: "a whole number", bool: "true or false"}


@frozen
class JsonObject:
    """Some fields at a place; each is asked for as what it has to be."""

    path: str
    fields: Mapping[str, JsonValue]

    @classmethod
    def of(cls, value: JsonValue, path: str) -> "JsonObject":
        """Refuse what is no object."""
        if not isinstance(value, Mapping):
            raise InvalidValueError(
                field=path, value=type(value).__name__, problem="must be an object"
            )
        return cls(path, value)

    def check_version(self, version: int, *, remedy: str) -> None:
        """Refuse another version than the one that is known, before anything else is read."""
        found = self.get("version", int)
        if found != version:
            raise InvalidValueError(
                field=f"{self.path}.version",
                value=found,
                problem=f"is not known: this release reads version {version}",
                remedy=remedy,
            )

    def check_names(self, names: Collection[str], *, optional: Collection[str] = ()) -> None:
        """Refuse a field that is missing, and one that is not known: it may be a misspelt one."""
        for name in names:
            if name not in self.fields:
                raise self.refused(name, "is missing")
        for name in self.fields:
            if name not in names and name not in optional:
                raise self.refused(name, "is not known")

    def get(self, name: str, kind: type[Kind]) -> Kind:
        """Return a field of the kind that it must be; ``True`` is not a number."""
        value = self.fields.get(name)
        if type(value) is not kind:
            raise self.refused(name, f"must be {_NAMES[kind]}")
        return value

    def get_list(self, name: str) -> Sequence[JsonValue]:
        """Return a field that must be a list."""
        value = self.fields.get(name)
        if not isinstance(value, list | tuple):
            raise self.refused(name, "must be a list")
        return value

    def get_number(self, name: str) -> float:
        """Return a field that must be a number, whole or not."""
        value = self.fields.get(name)
        if type(value) not in {int, float}:
            raise self.refused(name, "must be a number")
        return float(value)  # type: ignore[arg-type]  # it is one of the two

    def get_member(self, name: str, kind: type[Member]) -> Member:
        """Return a field that must be one of a few words."""
        value = self.fields.get(name)
        if value not in list(kind):
            raise self.refused(name, f"must be one of {', '.join(kind)}")
        return kind(value)

    def get_moment(self, name: str) -> datetime:
        """Return a field that must be a time with its zone."""
        return moment_of(self.get(name, str), field=f"{self.path}.{name}")

    def get_date(self, name: str) -> date:
        """Return a field that must be a date, in the one form in which dates are written."""
        found = date_of(self.get(name, str))
        if found is None:
            raise self.refused(name, "must be a date, such as 2024-01-31")
        return found

    def refused(self, name: str, problem: str) -> InvalidValueError:
        """Return the error about one field."""
        return InvalidValueError(
            field=f"{self.path}.{name}", value=self.fields.get(name), problem=problem
        )

    @contextmanager
    def naming(self, name: str | None = None) -> Iterator[None]:
        """Let what a value says of its own fields be said of the field it was made from."""
        path = self.path if name is None else f"{self.path}.{name}"
        try:
            yield
        except InvalidValueError as error:
            if error.field.startswith(self.path):
                raise
            _, _, part = error.field.partition(".")
            raise InvalidValueError(
                field=f"{path}.{part}" if part else path,
                value=error.value,
                problem=error.problem,
                remedy=error.remedy,
            ) from error
