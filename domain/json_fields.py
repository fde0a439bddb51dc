"""The fields of a JSON object whose form is known: none is missing, none is a stranger's."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TypeVar

from attrs import frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.listing import moment_of

_Value = TypeVar("_Value")
_Enum = TypeVar("_Enum", bound=StrEnum)


@frozen
class JsonFields:
    """An object with exactly these fields; ``path`` is how errors name it."""

    data: Mapping[str, Any]
    path: str

    @classmethod
    def of(cls, data: object, path: str, names: Sequence[str]) -> "JsonFields":
        """Take an object, or refuse it by the field that is too few or too many."""
        if not isinstance(data, Mapping):
            raise InvalidValueError(
                field=path, value=type(data).__name__, problem="must be an object"
            )
        if len(data) != len(names) or not all(name in data for name in names):
            for name in names:
                if name not in data:
                    raise InvalidValueError(
                        field=f"{path}.{name}", value=None, problem="is missing"
                    )
            stranger = next(name for name in data if name not in names)
            raise InvalidValueError(
                field=f"{path}.{stranger}", value=None, problem="is no field of this object"
            )
        return cls(data, path)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def below(self, name: str, names: Sequence[str]) -> "JsonFields":
        """Return a field that is an object itself."""
        return self.of(self.data[name], f"{self.path}.{name}", names)

    def moment(self, name: str) -> datetime:
        """Return a field that is a time."""
        return moment_of(self._text(name), field=f"{self.path}.{name}")

    def day(self, name: str) -> date:
        """Return a field that is a date, as ``2026-03-01`` and in no other form."""
        text = self._text(name)
        try:
            found = date.fromisoformat(text)
        except ValueError:
            found = None
        if found is None or found.isoformat() != text:
            raise self.refused(name, "must be a date of the form 2026-03-01")
        return found

    def member(self, name: str, kind: type[_Enum]) -> _Enum:
        """Return a field that is one of a few words."""
        try:
            return kind(self.data[name])
        except ValueError:
            raise self.refused(name, f"must be one of {', '.join(kind)}") from None

    def made(self, make: Callable[[], _Value], name: str | None = None) -> _Value:
        """Make a value of the fields; what it refuses is named by its place, or as ``name``."""
        try:
            return make()
        except InvalidValueError as error:
            if error.field.startswith(f"{self.path}."):
                raise
            place = name or error.field.rpartition(".")[2]
            raise InvalidValueError(
                field=f"{self.path}.{place}", value=error.value, problem=error.problem
            ) from None

    def refused(self, name: str, problem: str) -> InvalidValueError:
        """Return the error about one field."""
        return InvalidValueError(
            field=f"{self.path}.{name}", value=self.data[name], problem=problem
        )

    def _text(self, name: str) -> str:
        value = self.data[name]
        if not isinstance(value, str):
            raise self.refused(name, "must be text")
        return value
