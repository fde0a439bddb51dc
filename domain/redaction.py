"""Removes keys from text of other sources: a known key in any encoding, unknown keys by their look.

A provider may repeat our key in an error page or a field, percent-encoded, in base64, in hex, as
escapes, wrapped into lines or only in part. What is masked is every run of 8 or more of its letters
and digits, whatever is between them.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from string import ascii_lowercase, ascii_uppercase

from attrs import frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):
    from html import unescape

REDACTED = "***"
GRAM_CHARS = 8
"""A shorter part of a key is not recognised: other text has it by chance."""
_BASE64_GRAM = 9
"""8 bytes fill at least that many characters of base64, at any offset."""
_PASSES_MAX = 3
_ESCAPES = (
    r"%(?P<percent>[0-9A-Fa-f]{2})"
    r"|\\u(?P<unicode>[0-9A-Fa-f]{4})|\\u\{(?P<braces>[0-9A-Fa-f]{1,6})\}"
    r"|(?:\\|0)x(?P<hex>[0-9A-Fa-f]{2})|\\[nrtbf]|\\(?P<escaped>[/\"'])|<[^<>]{0,40}>"
    r"|&#(?P<decimal>[0-9]{1,7});?|&#[xX](?P<entity>[0-9A-Fa-f]{1,6});?|&(?P<named>[A-Za-z]{2,8});"
)
_UNESCAPES = tuple(
    re.compile(f"{_ESCAPES}{more}", re.DOTALL)
    # Quoted-printable apart, because "=" also separates a name from a value.
    for more in (r"", r"|=(?P<quoted>[0-9A-Fa-f]{2})|=\r?\n")
)
_URL_SAFE = str.maketrans("-_", "+/")
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


@frozen
class _View:
    """A form of a text, with the place of each of its characters in the original."""

    text: str
    places: list[tuple[int, int]]

    def unescape(self, escapes: "re.Pattern[str]") -> "_View":
        """Decode escapes; those for nothing, such as wrapped lines, are left out."""
        parts: list[str] = []
        places: list[tuple[int, int]] = []
        end = 0
        for found in escapes.finditer(self.text):
            parts.append(self.text[end : found.start()])
            places += self.places[end : found.start()]
            char = _decode_escape(found)
            parts.append(char)
            place = self.places[found.start()][0], self.places[found.end() - 1][1]
            places += [place] * len(char)
            end = found.end()
        parts.append(self.text[end:])
        return _View("".join(parts), places + self.places[end:])

    def filter(self, keeps: Callable[[str], bool]) -> "_View":
        kept = [index for index, char in enumerate(self.text) if keeps(char)]
        return _View(
            "".join(self.text[index] for index in kept), [self.places[index] for index in kept]
        )

    def find_grams(self, grams: frozenset[str]) -> Iterator[tuple[int, int]]:
        """Yield the original place of each window that is one of the grams, all of one length."""
        size = len(next(iter(grams), ""))
        for start in range(len(self.text) - size + 1 if size else 0):
            if self.text[start : start + size] in grams:
                yield self.places[start][0], self.places[start + size - 1][1]


def redact_key(text: str, key: str) -> str:
    """Mask a key, and every part of it that is long enough, in any common encoding."""
    if not key or not text:
        return text
    return _mask(text, [span for view in _build_views(text) for span in _find_key(view, key)])


def redact_excerpt(text: str, key: str) -> str:
    """Like ``redact_key``, for text that was cut: its end may be a short part of the key."""
    text = redact_key(text, key)
    for length in range(len(key) - 1, 3, -1):
        if text.endswith(key[:length]):
            return text[:-length] + REDACTED
    return text


def _build_views(text: str) -> list[_View]:
    plain = _View(text, [(index, index + 1) for index in range(len(text))])
    views = [plain]
    for escapes in _UNESCAPES:
        view = plain
        for _ in range(_PASSES_MAX):
            following = view.unescape(escapes)
            if following.text == view.text:
                break
            view = following
            views.append(view)
    return views


def _find_key(view: _View, key: str) -> Iterator[tuple[int, int]]:
    for found in re.finditer(re.escape(key), view.text, re.IGNORECASE):
        yield view.places[found.start()][0], view.places[found.end() - 1][1]
    lower = _View(view.text.translate(_LOWER), view.places)
    yield from lower.find_grams(_split_grams(key.translate(_LOWER), GRAM_CHARS))
    letters = lower.filter(_is_letter_or_digit)
    plain = "".join(filter(_is_letter_or_digit, key.translate(_LOWER)))
    yield from letters.find_grams(_split_grams(plain, GRAM_CHARS))
    in_hex = key.encode().hex()
    yield from letters.find_grams(_split_grams(in_hex, 2 * GRAM_CHARS, step=2))
    base64 = view.filter(_is_base64)
    base64 = _View(base64.text.translate(_URL_SAFE), base64.places)
    for grams in _split_base64(key.encode()):
        yield from base64.find_grams(grams)


def _split_grams(text: str, size: int, step: int = 1) -> frozenset[str]:
    """Return the parts of this size; a shorter text is its only part, if it has some length."""
    if len(text) < size:
        return frozenset({text} if len(text) >= size // 2 else ())
    return frozenset(text[start : start + size] for start in range(0, len(text) - size + 1, step))


def _split_base64(key: bytes) -> Iterator[frozenset[str]]:
    """Yield parts of the key's base64, for each offset that it may have in encoded data."""
    for offset in range(3):
        encoded = b64encode(bytes(offset) + key).decode("ascii")
        whole = encoded[-(-offset * 8 // 6) : (offset + len(key)) * 8 // 6]
        yield _split_grams(whole, _BASE64_GRAM)


def _decode_escape(found: "re.Match[str]") -> str:
    groups = {name: value for name, value in found.groupdict().items() if value is not None}
    if not groups:
        return ""
    ((name, value),) = groups.items()
    if name in {"named", "escaped"}:
        return unescape(found[0]) if name == "named" else value
    code = int(value, 10 if name == "decimal" else 16)
    return chr(code) if code < 0x11_0000 else ""  # noqa: PLR2004  # the end of Unicode


def _is_letter_or_digit(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _is_base64(char: str) -> bool:
    return (char.isascii() and char.isalnum()) or char in "+/-_"


def _mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    shown: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start > end or not shown:
            shown += [text[end:start], REDACTED]
        end = max(end, stop)
    return "".join([*shown, text[end:]])


_KEY_NAME = re.compile(
    r"(?i)key|token|secret|signature|credential|passw|auth|session|hmac|jwt"
    r"|^(?:sig|code|pwd|pass|sas|app_?id|client_?id)$"
)
_ASSIGNED = re.compile(r"([?&;])([\w.%-]{1,64})=(?!\{)([^\s&;\"'<>]+)")
_LIKELY = (
    (re.compile(r"(?i)(bearer\s+)[^\s'\"*]+"), r"\1***"),
    (re.compile(r"://(?!user:password@)[^\s/@]+@"), "://***@"),  # the example in our own messages
    (
        re.compile(r"(?i)(password|passwd|secret|token|api[_-]?key)(=|['\"]\s*:\s*)(?!\{)\S+"),
        r"\1\2***",
    ),
)
_URL = re.compile(r"(?<=://)[^\s\"'<>]+")
_URL_VALUE = re.compile(r"(?<=[=/])[A-Za-z0-9_.~%+-]{16,}")
_MIX = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_MIXES_MIN = 4
_LONG_CHARS, _VARIETY_MIN = 32, 16


def redact_likely_keys(text: str) -> str:
    """Mask what looks like a key, if it is unknown: by its name, or as a random part of a URL."""
    for pattern, shown in _LIKELY:
        text = pattern.sub(shown, text)
    text = _ASSIGNED.sub(_mask_named, text)
    return _URL.sub(lambda url: _URL_VALUE.sub(_mask_random, url[0]), text)


def _mask_named(found: "re.Match[str]") -> str:
    return f"{found[1]}{found[2]}={REDACTED}" if _KEY_NAME.search(found[2]) else found[0]


def _mask_random(found: "re.Match[str]") -> str:
    """Mask a value that mixes letters and digits; words, versions and dates are shown."""
    value = found[0]
    is_long = len(value) >= _LONG_CHARS and len(set(value)) >= _VARIETY_MIN
    return REDACTED if is_long or len(_MIX.findall(value)) >= _MIXES_MIN else value
