"""Numbers from outside, brought into one form before they are checked and hashed."""

import math
from typing import TYPE_CHECKING, Any

from tileferry.domain.checks import field_name
from tileferry.domain.errors import InvalidValueError

if TYPE_CHECKING:
    from attrs import Attribute


def as_float(value: float) -> float:
    """Write equal numbers alike: ``1`` as ``1.0``, ``-0.0`` as ``0.0``, beyond floats as infinity.

    What is no number comes back as it is, for the field's validator to refuse.
    """
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:  # JSON has no limit on digits
            return math.copysign(math.inf, value > 0 or -1)
    return value + 0.0 if type(value) is float else value


def positive(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Accept finite floats above zero."""
    if not (type(value) is float and 0.0 < value < math.inf):
        raise InvalidValueError(
            field=field_name(instance, attribute),
            value=value,
            problem="must be a finite number above 0",
        )
