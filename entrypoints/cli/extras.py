"""What is installed on request only: a command that needs it says how to get it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tileferry.domain.errors import InvalidValueError


@contextmanager
def require_extra(name: str, *, needed_by: str) -> Iterator[None]:
    """Import within what an extra brings; one that is missing is refused by its name."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tileferry"):
            raise
        raise InvalidValueError(
            field=needed_by,
            value=error.name,
            problem="is not installed",
            remedy=f"pip install 'tileferry[{name}]'",
        ) from error
