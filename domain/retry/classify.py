"""Error classes: final, retryable, or rate-limited."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

from attrs import field, frozen, validators

from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.validation import number


@frozen
class Final:
    """A retry cannot help."""

    code: ClassVar[str] = "final"


@frozen
class Retryable:
    """A retry may help."""

    code: ClassVar[str] = "retryable"


@frozen
class RateLimited:
    """A retry helps after a wait. The server may have said how long."""

    code: ClassVar[str] = "rate_limited"
    retry_after_s: float | None = field(default=None, validator=validators.optional(number(0)))


ErrorClass: TypeAlias = Final | Retryable | RateLimited


Classifier = Callable[[BaseException], "ErrorClass"]
"""Returns details that a policy's lists cannot express, such as a wait that a server requested."""


def classify_failure(
    error: BaseException, policy: RetryPolicy, classifier: Classifier | None
) -> ErrorClass:
    """Classify with the classifier if there is one, and otherwise by the policy's lists.

    Interrupts and cancellations are never passed to the classifier.
    """
    if classifier is None or not isinstance(error, Exception):
        return classify_exception(error, policy)
    return classifier(error)


def classify_exception(error: BaseException, policy: RetryPolicy) -> ErrorClass:
    """Classify by the policy's lists. The most specific listed class of the error applies.

    A class in both lists is retryable, and so is an error in neither list. An exception that is not
    an ``Exception`` (an interrupt, a cancellation, ``GeneratorExit``) is always final.
    """
    if not isinstance(error, Exception):
        return Final()
    for kind in type(error).__mro__:
        if kind in policy.retryable_exceptions:
            return Retryable()
        if kind in policy.non_retryable_exceptions:
            return Final()
    return Retryable()
