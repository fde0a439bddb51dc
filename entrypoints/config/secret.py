"""Secrets: text that is never shown."""

import typed_settings as ts

from tileferry.domain.errors import InvalidValueError


def as_secret(value: str | ts.Secret[str] | None) -> ts.Secret[str] | None:
    """Hide a text, unless it is hidden already; a program may give it either way."""
    match value:
        case None | ts.Secret():
            return value
        case str():
            return ts.Secret(value)
    raise InvalidValueError(field="a secret", value=type(value).__name__, problem="is no text")
