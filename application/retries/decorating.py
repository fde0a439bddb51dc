"""What can be decorated, and what is known of it."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

from tileferry.domain.errors import InvalidValueError


def check_decorable(function: Any, idempotency_key: Any) -> None:
    """Refuse what would look retried and would not be: its work happens after it returned."""
    plain = _unwrapped(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidValueError(
            field="function",
            value=getattr(plain, "__qualname__", plain),
            problem="is a generator, whose work begins after the call",
            remedy="decorate a function that does the work, or use attempts() inside it",
        )
    for name, value in (("function", function), ("idempotency_key", idempotency_key)):
        if value is not None and not callable(value):
            raise InvalidValueError(field=name, value=value, problem="must be a function")


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether its results are to be awaited."""
    return inspect.iscoroutinefunction(_unwrapped(function))


def return_type_of(function: Callable[..., Any]) -> Any:
    """Return the declared type of the results; ``Any`` where none is, or it cannot be looked up."""
    try:
        return get_type_hints(_unwrapped(function)).get("return", Any)
    except (NameError, TypeError):
        return Any


def _unwrapped(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function
