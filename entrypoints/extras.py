"""Imports of optional dependencies."""

from collections.abc import Iterator
from contextlib import contextmanager

from tileferry.domain.errors import MisuseError


@contextmanager
def require_extra(name: str, *, needed_by: str) -> Iterator[None]:
    """Turn a failed import inside the block into an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tileferry"):
            raise
        raise MisuseError(
            what=needed_by,
            problem=f"the module {error.name} is not installed",
            remedy=f"run pip install 'tileferry[{name}]'",
        ) from error
