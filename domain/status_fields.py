"""Declares which fields are filled in which status, like the database's CHECK constraints."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError

S = TypeVar("S", bound=StrEnum)


@frozen(kw_only=True)
class StatusFields:
    """The fields that one status fills. Other fields named by any status must be empty.

    ``None``, zero and ``False`` are empty.
    """

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    names: frozenset[str] = field(init=False)

    @names.default
    def _all(self) -> frozenset[str]:
        return self.required | self.optional


def check_status_fields(value: object, status: S, shapes: Mapping[S, StatusFields]) -> None:
    """Raise if the fields of a value do not match its status."""
    shape = shapes[status]
    for name in shape.required:
        if not getattr(value, name):
            raise field_conflict(value, name, f"must be filled while the status is {status}")
    for each in shapes.values():
        if each is not shape:
            for name in each.names - shape.names:
                if getattr(value, name):
                    raise field_conflict(value, name, f"must be empty while the status is {status}")


def field_conflict(value: object, name: str, problem: str) -> InvalidValueError:
    """Return the error for a field of ``value`` that contradicts the others."""
    return InvalidValueError(
        field=f"{type(value).__name__}.{name}", value=getattr(value, name), problem=problem
    )
