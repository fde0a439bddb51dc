"""A retry policy: the number of attempts, the delays, and which errors are retryable."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import converters, field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import (
    Validator,
    as_float,
    as_tuple,
    each,
    format_field_name,
    instance,
    integer,
    number,
    text,
)

if TYPE_CHECKING:
    from attrs import Attribute

ATTEMPTS_MAX = 1_000
DELAY_S_MAX = 7 * 24 * 3600.0
DEADLINE_S_MAX = 90 * 24 * 3600.0
MULTIPLIER_MAX = 100.0
CUSTOM = "custom"
"""The default name of a policy."""


class BackoffKind(StrEnum):
    """How the delay grows with the number of attempts."""

    EXPONENTIAL = "exponential"
    """``base_delay * backoff_multiplier ** (attempt - 1)``."""
    POWER = "power"
    """``base_delay ** attempt``."""


_optional_text: Validator = validators.optional(text)
ExceptionTypes = tuple[type[BaseException], ...]


def _check_subclasses(parent: type[BaseException]) -> Validator:
    def check(instance: object, attribute: "Attribute[Any]", kind: object) -> None:
        if not (isinstance(kind, type) and issubclass(kind, parent)):
            raise InvalidValueError(
                field=format_field_name(instance, attribute),
                value=kind,
                problem=f"must list subclasses of {parent.__name__} only",
            )

    return each(check)


@frozen(kw_only=True)
class RetryPolicy:
    """The retry limits of one operation. ``max_attempts`` includes the first attempt."""

    max_attempts: int = field(default=3, validator=integer(1, ATTEMPTS_MAX))
    base_delay: float = field(default=1.0, converter=as_float, validator=number(0, DELAY_S_MAX))
    max_delay: float = field(default=30.0, converter=as_float, validator=number(0, DELAY_S_MAX))
    backoff_multiplier: float = field(
        default=2.0, converter=as_float, validator=number(1, MULTIPLIER_MAX)
    )
    jitter_enabled: bool = field(default=True, validator=instance(bool))
    jitter_factor: float = field(default=0.1, converter=as_float, validator=number(0, 1))
    # Cancellations and interrupts are not ``Exception`` subclasses, so they can never be listed
    # here.
    retryable_exceptions: ExceptionTypes = field(
        default=(Exception,), converter=as_tuple, validator=_check_subclasses(Exception)
    )
    non_retryable_exceptions: ExceptionTypes = field(
        default=(), converter=as_tuple, validator=_check_subclasses(BaseException)
    )
    backoff: BackoffKind = field(default=BackoffKind.EXPONENTIAL, validator=instance(BackoffKind))
    deadline_s: float | None = field(
        default=None,
        converter=converters.optional(as_float),
        validator=validators.optional(number(0, DEADLINE_S_MAX)),
    )
    """Time from the start of the first attempt after which no retry may start; ``None`` for no
    limit.
    """
    max_rate_limited: int = field(default=10, validator=integer(0, ATTEMPTS_MAX))
    """How many rate-limit waits are allowed before the operation fails."""
    max_retry_after_s: float = field(
        default=300.0, converter=as_float, validator=number(0, DELAY_S_MAX)
    )
    """The maximum wait that a server may request."""
    name: str | None = field(default=CUSTOM, eq=False, validator=_optional_text)
    """The name used in decision records; ``None`` only if read from a record without a name."""

    def __attrs_post_init__(self) -> None:
        if self.backoff is BackoffKind.EXPONENTIAL and self.max_delay < self.base_delay:
            raise InvalidValueError(
                field="RetryPolicy.max_delay",
                value=self.max_delay,
                problem=f"is below base_delay, {self.base_delay:g} s",
                remedy="raise max_delay or lower base_delay",
            )
