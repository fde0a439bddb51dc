"""What an error means for retrying: never, again, or again when the other side says so."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

from attrs import field, frozen, validators

from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.validation import number


@frozen
class Final:
    """Trying again cannot help."""

    code: ClassVar[str] = "final"


@frozen
class Retryable:
    """Trying again may help."""

    code: ClassVar[str] = "retryable"


@frozen
class RateLimited:
    """Trying again helps once the other side is ready; it may have said when."""

    code: ClassVar[str] = "rate_limited"
    retry_after_s: float | None = field(default=None, validator=validators.optional(number(0)))


ErrorClass: TypeAlias = Final | Retryable | RateLimited


Classifier = Callable[[BaseException], "ErrorClass"]
"""Tells more than a policy's lists can, such as a wait that a server asked for."""


def classify_failure(
    error: BaseException, policy: RetryPolicy, classifier: Classifier | None
) -> ErrorClass:
    """Classify by the classifier, where there is one, and otherwise by the policy's lists.

    An interrupt or a cancellation is nobody's to reclassify.
    """
    if classifier is None or not isinstance(error, Exception):
        return classify_exception(error, policy)
    return classifier(error)


def classify_exception(error: BaseException, policy: RetryPolicy) -> ErrorClass:
    """Classify by the policy's lists: the most specific listed class of the error decides.

    A class in both lists is retryable; an error that neither list covers is retryable too, unless
    it is no ``Exception`` at all (an interrupt, a cancellation, the end of a generator).
    """
    if not isinstance(error, Exception):
        return Final()
    for kind in type(error).__mro__:
        if kind in policy.retryable_exceptions:
            return Retryable()
        if kind in policy.non_retryable_exceptions:
            return Final()
    return Retryable()
