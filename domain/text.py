"""Makes text from other sources safe to show on a terminal and in one line of a log."""

from datetime import UTC, datetime

from tileferry.domain.redaction import redact_likely_keys

SHOWN_CHARS_MAX = 200
_MARGIN_CHARS = 4_000
"""What follows the shown text may reveal that a key begins in it."""


def printable(text: str, *, limit: int = SHOWN_CHARS_MAX) -> str:
    """Escape unprintable characters, and truncate to ``limit`` characters of the original.

    What looks like a key is redacted, whatever the source of the text. ``str.isprintable`` is false
    for exactly the dangerous characters: line breaks, control and escape characters, bidirectional
    overrides, zero-width characters and lone surrogates.
    """
    end = limit + _MARGIN_CHARS
    head = redact_likely_keys(text[:end])
    shown = head[:limit]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _escape(char) for char in shown)
    hidden = len(head) + len(text[end:]) - limit
    return f"{shown}… (+{hidden} characters)" if hidden > 0 else shown


def quote_value(value: object) -> str:
    """Return any value as text for a message, even if its ``repr`` fails."""
    if isinstance(value, int) and value.bit_length() > SHOWN_CHARS_MAX:
        return f"a whole number of {value.bit_length()} bits"
    try:
        return printable(repr(value))
    except Exception:  # noqa: BLE001  # a third-party repr may raise anything
        return f"a {type(value).__name__}"


def format_utc(moment: datetime | None) -> str:
    """Return a time as text for a message: in UTC, to the second."""
    return "no time" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_bytes(count: int) -> str:
    """Return a byte count with a unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004  # the factor between units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_error(error: BaseException) -> str:
    """Return the message of an error as one safe line; empty if it has none."""
    try:
        return printable(str(error))
    except Exception:  # noqa: BLE001  # reporting a failure must not fail
        return ""


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
