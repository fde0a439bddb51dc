"""Help texts, converters and validators for the declarations of settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_data_path

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox
from tileferry.domain.tiles.tile_id import check_source
from tileferry.domain.validation import as_float, positive

if TYPE_CHECKING:
    from attrs import Attribute


APP = "tileferry"
ABOUT = "about"
EXAMPLE = "example"


def doc(text: str, example: float | str | None = None) -> dict[str, object]:
    """Return field metadata: the help text, and an example if the setting has no default.

    ``config init`` writes both to the template.
    """
    return {ABOUT: text, EXAMPLE: example}


def data_path(name: str) -> Path:
    """Return a path in the user's data folder."""
    return user_data_path(APP) / name


class Secret:
    """A text that is shown as ``***`` unless it is read explicitly."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "'***'"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


def to_secret(value: str | Secret | None) -> Secret | None:
    """Wrap a text as a secret; programs may pass either form."""
    match value:
        case None | Secret():
            return value
        case str():
            return Secret(value)
    raise InvalidValueError(field="a secret", value=type(value).__name__, problem="must be text")


def source_name(_instance: object, _attribute: object, source: str) -> None:
    check_source(source, field="c11.source")


def above_zero(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Check that a value is a number above zero, whatever its numeric type."""
    positive(instance, attribute, as_float(value))


def check_order(table: object, smaller: str, larger: str) -> None:
    """Check that the maximum in a table is not below the minimum."""
    least, most = getattr(table, smaller), getattr(table, larger)
    if most is not None and most < least:
        raise InvalidValueError(
            field=f"{type(table).__name__}.{larger}",
            value=most,
            problem=f"is below {smaller}, {least:g}",
        )


def check_areas(_instance: object, _attribute: object, areas: dict[str, str]) -> None:
    """Check that every named area is a bounding box."""
    for area, box in areas.items():
        try:
            BBox.parse(box)
        except InvalidValueError as error:
            raise InvalidValueError(
                field=f"areas.{area}", value=box, problem=f"invalid bounding box: {error.problem}"
            ) from None
