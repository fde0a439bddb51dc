"""Foreign text on a terminal and in a log."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.text import SHOWN_CHARS_MAX, format_bytes, format_utc, printable


def test_plain_text_is_unchanged() -> None:
    assert printable("Großer Tisch, 5 × 7") == "Großer Tisch, 5 × 7"  # noqa: RUF001  # on purpose


def test_control_and_bidi_characters_are_escaped() -> None:
    assert printable("a\r\nb") == "a\\r\\nb"
    assert printable("\x1b[31mred\x07\0") == "\\x1b[31mred\\x07\\x00"
    assert printable("abc\u202edef\u2066") == "abc\\u202edef\\u2066"
    assert printable("line\u2028break\u200b") == "line\\u2028break\\u200b"
    assert printable("\ud800") == "\\ud800"
    assert printable("\U000e0041") == "\\U000e0041"


def test_time_is_formatted_in_utc_to_the_second() -> None:
    moment = datetime(2026, 11, 16, 17, 16, 16, 16_469, tzinfo=timezone(timedelta(hours=1)))
    assert format_utc(moment) == "2026-11-16 16:16:16 UTC"
    assert format_utc(None) == "no time"


def test_long_text_is_truncated_with_count() -> None:
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 203) == "x" * 200 + "… (+3 characters)"
    assert printable("abcdef", limit=4) == "abcd… (+2 characters)"


@given(st.text())
def test_result_is_always_one_printable_bounded_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= SHOWN_CHARS_MAX * 10 + 40


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [
        ("Authorization: Bearer abc-123 was refused", "Authorization: Bearer *** was refused"),
        ("{'authorization': 'bearer abc'}", "{'authorization': 'bearer ***'}"),
        ("Bearer ***", "Bearer ***"),
        (f"{'x' * 190} Bearer {'k' * 40}", f"{'x' * 190} Bearer **… (+1 characters)"),
    ],
)
def test_invariant_34_bearer_key_is_redacted(text: str, shown_as: str) -> None:
    assert printable(text) == shown_as


@pytest.mark.parametrize(
    ("count", "read"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_536, "1.5 KiB"),
        (1024**3, "1.0 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes_are_formatted_in_binary_units(count: int, read: str) -> None:
    assert format_bytes(count) == read
