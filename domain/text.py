"""Text from elsewhere, made safe to show on a terminal and to put on one line of a log."""

SHOWN_CHARS_MAX = 200


def printable(text: str, *, limit: int = SHOWN_CHARS_MAX) -> str:
    """Escape what is not plainly visible, and cut to ``limit`` characters of the original.

    ``str.isprintable`` is false for exactly the dangerous ones: line breaks, control and escape
    characters, bidirectional overrides, zero-width characters and lone surrogates.
    """
    shown = "".join(char if char.isprintable() else _escaped(char) for char in text[:limit])
    hidden = len(text) - limit
    return f"{shown}… (+{hidden} characters)" if hidden > 0 else shown


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
