"""Keys in text: known ones in any form, and unknown ones by their look."""

import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.key_echo import ENCODINGS, find_key

from tileferry.domain.redaction import redact_excerpt, redact_key, redact_likely_keys

KEY = "CaNary/ab+cd&EFGH=="
KEYS = st.text(string.ascii_letters + string.digits + "-._~+/=", min_size=16, max_size=64).filter(
    lambda key: len(re.findall("[A-Za-z0-9]", key)) >= 14
)


@pytest.mark.parametrize("name", ENCODINGS)
def test_invariant_34_every_encoding_of_the_key_is_redacted(name: str) -> None:
    text = f'{{"key": "{ENCODINGS[name](KEY)}", "said": "no"}}'
    shown = redact_key(text, KEY)
    assert "***" in shown
    assert find_key(shown, KEY) is None
    assert shown.endswith('"said": "no"}')


@pytest.mark.parametrize(
    "repeated",
    [
        KEY,
        KEY.upper(),
        "CaNary%2Fab%2Bcd%26EFGH%3D%3D",
        "CaNary/ab%2Bcd%26EFGH%3D%3D",
        r"CaNary\/ab+cd&EFGH==",
        "CaNary/ab+cd&amp;EFGH==",
        "CaNary/ab+cd&EFGH=3D=3D",  # quoted-printable
    ],
)
def test_common_form_of_the_key_is_redacted_whole(repeated: str) -> None:
    assert redact_key(f'{{"key": "{repeated}"}}', KEY) == '{"key": "***"}'


@given(KEYS, st.sampled_from(sorted(ENCODINGS)), st.text(max_size=30), st.text(max_size=30))
def test_invariant_34_any_key_is_redacted_in_any_text(
    key: str, name: str, before: str, after: str
) -> None:
    assume(find_key(before + after, key) is None)
    shown = redact_key(f"{before} {ENCODINGS[name](key)} {after}", key)
    assert find_key(shown, key) is None


@given(KEYS, st.integers(0, 56), st.sampled_from(["verbatim", "hex", "base64", "unicode escapes"]))
def test_part_of_a_key_is_redacted(key: str, start: int, name: str) -> None:
    part = key[start % (len(key) - 12) :][:12]
    assume(len(re.findall("[A-Za-z0-9]", part)) >= 8)
    encoded = ENCODINGS[name](part)
    assert encoded not in redact_key(f"({encoded})", key)


@given(st.text(), st.text(min_size=1, max_size=40).filter(lambda key: key.strip("*")))
def test_arbitrary_text_and_keys_are_handled(text: str, key: str) -> None:
    assert key not in redact_key(text + key, key)


@pytest.mark.parametrize("key", ["", "k", "s3cr"])
def test_text_without_the_key_is_unchanged(key: str) -> None:
    text = "as it was: 100 % of a = b, &amp; &#99999999; \\u{110000} <b>"
    assert redact_key(text, key) == text
    assert redact_key("", "canary-key") == ""


def test_short_key_is_redacted_as_a_whole() -> None:
    assert redact_key("is s3cr-et or 733363722d6574", "s3cr-et") == "is *** or ***"


@pytest.mark.parametrize("length", [4, 7, 9])
def test_part_of_the_key_at_the_end_of_an_excerpt_is_redacted(length: int) -> None:
    assert redact_excerpt(f"bad key {KEY[:length]}", KEY) == "bad key ***"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    ["?" * 50_000, "?key" * 12_000, "%25" * 16_000, "=?&;" * 12_000, "://" * 16_000, "a1" * 25_000],
)
def test_redaction_is_linear(text: str) -> None:
    """Otherwise it would take minutes."""
    redact_likely_keys(text)
    redact_key(text, KEY)


RANDOM = "9fK2xQ7tLm4Zr8Vb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("https://user:word@host/a", "https://***@host/a"),
        ("at https://host/a?X-Amz-Signature=00ff&z=1", "at https://host/a?X-Amz-Signature=***&z=1"),
        ("https://h/a?subscription-key=abc", "https://h/a?subscription-key=***"),
        ("https://h/a?appid=abc&layer=x", "https://h/a?appid=***&layer=x"),
        ("https://h/a?app_id=abc;sig=d", "https://h/a?app_id=***;sig=***"),
        ("/a?token=abc", "/a?token=***"),
        (f"https://h/a?q={RANDOM}", "https://h/a?q=***"),
        (f"https://h/{RANDOM}/3/4/5.png", "https://h/***/3/4/5.png"),
        ("https://h/" + "ab" + string.ascii_uppercase + "cdefgh/1", "https://h/***/1"),
        ("password=abc", "password=***"),
        ('{"api_key": "abc"}', '{"api_key": ***'),
        ("https://h/{z}/{x}/{y}?key={api_key}", "https://h/{z}/{x}/{y}?key={api_key}"),
        ("https://h/wmts?TILEMATRIXSET=GoogleMapsCompatible_Level9", None),
        ("https://h/api/satellite/tiles/14/9830/5544?bbox=36.0,50.0", None),
        ("https://h/imagery-2024-06-01T00-00-00Z/1", None),
        ("sha256 mismatch: 9fk2xq7tlm4zr8vb9fk2xq7tlm4zr8vb", None),
        ("monkey=1 and x = y", None),
        ("use postgresql://user:password@host:port/database", None),
    ],
)
def test_likely_key_is_redacted(text: str, shown: str | None) -> None:
    assert redact_likely_keys(text) == (text if shown is None else shown)
