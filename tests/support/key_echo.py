"""A key as a provider may repeat it: in every form that a program, a page or a mail gives it."""

import base64
import html
import json
import quopri
from collections.abc import Callable
from urllib.parse import quote, quote_plus

Encoding = Callable[[str], str]


def _wrap(key: str, separator: str) -> str:
    return separator.join(key[start : start + 5] for start in range(0, len(key), 5))


ENCODINGS: dict[str, Encoding] = {
    "verbatim": str,
    "upper case": str.upper,
    "in a header": lambda key: f"Authorization: Bearer {key}",
    "percent": lambda key: quote(key, safe=""),
    "percent, all": lambda key: "".join(f"%{ord(char):02x}" for char in key),
    "percent, twice": lambda key: "".join(f"%25{ord(char):02X}" for char in key),
    "percent, three times": lambda key: "".join(f"%2525{ord(char):02X}" for char in key),
    "form": quote_plus,
    "plus for a space": lambda key: key.replace("+", " "),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "base64 of a login": lambda key: base64.b64encode(f"u:{key}".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"ab{key}".encode()).decode(),
    "base64 in lines": lambda key: _wrap(base64.b64encode(key.encode()).decode(), "\n"),
    "hex": lambda key: key.encode().hex(),
    "hex, upper case": lambda key: key.encode().hex().upper(),
    "hex, spaced": lambda key: key.encode().hex(" "),
    "hex with colons": lambda key: key.encode().hex(":"),
    "bytes of a program": lambda key: ", ".join(f"0x{ord(char):02x}" for char in key),
    "JSON": lambda key: json.dumps(key).replace("/", r"\/"),
    "unicode escapes": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "unicode escapes, twice": lambda key: "".join(f"\\\\u{ord(char):04X}" for char in key),
    "escapes of bytes": lambda key: "".join(f"\\x{ord(char):02x}" for char in key),
    "HTML": html.escape,
    "HTML, decimal": lambda key: "".join(f"&#{ord(char)};" for char in key),
    "HTML, hex": lambda key: "".join(f"&#x{ord(char):X};" for char in key),
    "HTML tags": lambda key: _wrap(key, "<wbr>"),
    "quoted-printable": lambda key: quopri.encodestring(key.encode()).decode(),
    "quoted-printable, all": lambda key: "".join(f"={ord(char):02X}" for char in key),
    "quoted-printable, wrapped": lambda key: _wrap(key, "=\r\n"),
    "spaces": " ".join,
    "lines": lambda key: _wrap(key, "\r\n"),
    "escaped lines": lambda key: _wrap(key, r"\n"),
    "tabs and dashes": lambda key: _wrap(key, "\t- "),
    "first half": lambda key: key[: max(8, len(key) // 2)],
    "last half": lambda key: key[-max(8, len(key) // 2) :],
    "the middle": lambda key: f"…{key[2:-2]}…",
}


def find_key(text: str, key: str) -> str | None:
    """Return the form in which a text shows the key, or half of it; ``None`` if it does not."""
    for name, encode in ENCODINGS.items():
        shown = encode(key)
        half = shown[len(shown) // 4 : -(len(shown) // 4)]
        if shown in text or (len(half) >= 8 and half in text):  # what may be shown
            return name
    return None
