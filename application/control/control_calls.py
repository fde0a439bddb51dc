"""Database calls of the control plane, retried by the policy of their category.

A unit that fails changes nothing, so it can be repeated as it is.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import frozen

from tileferry.application.retries.manager import RetryManager
from tileferry.domain.errors import DatabaseError, RetryError, TileManagerError
from tileferry.domain.retry import ErrorClass, Final, Retryable, RetryCategory

Result = TypeVar("Result")


class ControlCalls(Protocol):
    """Makes database calls, with or without retries."""

    def __call__(
        self, category: RetryCategory, operation: str, call: Callable[[], Result], /
    ) -> Result:
        """Return the result of the call, or raise the error of its last attempt."""
        ...


def call_once(_category: RetryCategory, _operation: str, call: Callable[[], Result], /) -> Result:
    """Make the call without retries."""
    return call()


@frozen
class RetryingCalls:
    """Retries calls that fail because of the database."""

    retries: RetryManager

    def __call__(
        self, category: RetryCategory, operation: str, call: Callable[[], Result], /
    ) -> Result:
        """Make the call with its category's policy; raise the original error, not a retry error."""
        try:
            answer = self.retries.execute_with_retry_sync(
                category, operation, lambda: _call_or_refuse(call), classifier=_classify_error
            )
        except RetryError as error:
            raise (error.__cause__ or error) from None
        if isinstance(answer, _Refusal):
            raise answer.error
        return answer


@frozen
class _Refusal:
    """A refusal by a database that is available: a result, because a retry cannot change it."""

    error: TileManagerError


def _call_or_refuse(call: Callable[[], Result]) -> Result | _Refusal:
    try:
        return call()
    except DatabaseError:
        raise
    except TileManagerError as error:
        return _Refusal(error)


def _classify_error(error: BaseException) -> ErrorClass:
    return Retryable() if isinstance(error, DatabaseError) else Final()
