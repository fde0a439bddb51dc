"""Text from elsewhere, made safe to show on a terminal and to put on one line of a log."""

import re
from datetime import UTC, datetime

SHOWN_CHARS_MAX = 200
_KEY = re.compile(r"(?i)(bearer\s+)[^\s'\"*]+")


def printable(text: str, *, limit: int = SHOWN_CHARS_MAX) -> str:
    """Escape what is not plainly visible, and cut to ``limit`` characters of the original.

    What stands where a key stands in a header is hidden: nobody may show one, whoever said it.
    ``str.isprintable`` is false for exactly the dangerous ones: line breaks, control and escape
    characters, bidirectional overrides, zero-width characters and lone surrogates.
    """
    text = _KEY.sub(r"\1***", text)
    shown = "".join(char if char.isprintable() else _escape(char) for char in text[:limit])
    hidden = len(text) - limit
    return f"{shown}… (+{hidden} characters)" if hidden > 0 else shown


def quote_value(value: object) -> str:
    """Return how a message shows any value, even one that cannot show itself."""
    if isinstance(value, int) and value.bit_length() > SHOWN_CHARS_MAX:
        return f"a whole number of {value.bit_length()} bits"
    try:
        return printable(repr(value))
    except Exception:  # noqa: BLE001  # somebody else's repr may do anything
        return f"a {type(value).__name__}"


def format_utc(moment: datetime | None) -> str:
    """Return how a message shows a time: to the second, whatever zone it comes in."""
    return "no time" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_bytes(count: int) -> str:
    """Write a number of bytes as people read it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004  # what the units are made of
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_error(error: BaseException) -> str:
    """Return what an error says, on one safe line; empty when it cannot say anything."""
    try:
        return printable(str(error))
    except Exception:  # noqa: BLE001  # as above: telling of a failure must not fail
        return ""


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
