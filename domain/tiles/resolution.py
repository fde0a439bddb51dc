"""The resolution gate: which ground sampling an operator accepts."""

import math
from enum import StrEnum

from attrs import converters, field, frozen, validators

from tileferry.domain.checks import as_float, positive
from tileferry.domain.errors import InvalidValueError

MIN_M_PER_PX = 0.5


class ResolutionVerdict(StrEnum):
    """What the gate says about one tile."""

    ACCEPTED = "accepted"
    BELOW_MINIMUM = "below_minimum"
    ABOVE_MAXIMUM = "above_maximum"
    UNREADABLE = "unreadable"


@frozen(kw_only=True)
class ResolutionGate:
    """Accepts metres per pixel from the minimum to the optional maximum, both included."""

    min_m_per_px: float = field(default=MIN_M_PER_PX, converter=as_float, validator=positive)
    max_m_per_px: float | None = field(
        default=None,
        converter=converters.optional(as_float),
        validator=validators.optional(positive),
    )

    def __attrs_post_init__(self) -> None:
        if self.max_m_per_px is not None and self.max_m_per_px < self.min_m_per_px:
            raise InvalidValueError(
                field="ResolutionGate.max_m_per_px",
                value=self.max_m_per_px,
                problem=f"is below min_m_per_px, {self.min_m_per_px!r}",
            )

    def judge(self, resolution_m_per_px: float) -> ResolutionVerdict:
        """Judge one tile's resolution; what cannot be one is unreadable, and never accepted."""
        if type(resolution_m_per_px) not in {int, float}:
            return ResolutionVerdict.UNREADABLE
        if not 0.0 < resolution_m_per_px < math.inf:  # false for NaN
            return ResolutionVerdict.UNREADABLE
        if resolution_m_per_px < self.min_m_per_px:
            return ResolutionVerdict.BELOW_MINIMUM
        if self.max_m_per_px is not None and resolution_m_per_px > self.max_m_per_px:
            return ResolutionVerdict.ABOVE_MAXIMUM
        return ResolutionVerdict.ACCEPTED
