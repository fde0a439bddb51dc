"""The token bucket that retries are paid from; all who call one source share it."""

from collections.abc import Callable
from typing import Protocol

from tileferry.domain.retry import Decision


class RetryTokens(Protocol):
    """Keeps a ``RetryBudget``. Any thread may ask."""

    def note_first_attempt(self) -> None:
        """Let an operation that is tried for the first time earn its share."""
        ...

    def charged(self, decide: Callable[[float], Decision]) -> Decision:
        """Have something decided with the tokens there are, and charge a retry if it is one."""
        ...
