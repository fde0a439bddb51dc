"""Any text as a column of Postgres, which holds every character but one."""

_ZERO, _BACKSLASH = "\x00", "\\"


def escaped(text: str) -> str:
    r"""Write the character zero as ``\0``, and therefore a backslash as two."""
    return text.replace(_BACKSLASH, _BACKSLASH * 2).replace(_ZERO, r"\0")


def unescaped(text: str) -> str:
    """Read it back."""
    if _BACKSLASH not in text:
        return text
    parts = [part.replace(r"\0", _ZERO) for part in text.split(_BACKSLASH * 2)]
    return _BACKSLASH.join(parts)
