"""Foreign text on a terminal and in a log."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.text import SHOWN_CHARS_MAX, in_bytes, in_utc, printable


def test_plain_text_stays_as_it_is() -> None:
    assert printable("Großer Tisch, 5 × 7") == "Großer Tisch, 5 × 7"  # noqa: RUF001  # on purpose


def test_what_could_fool_a_reader_is_escaped() -> None:
    assert printable("a\r\nb") == "a\\r\\nb"
    assert printable("\x1b[31mred\x07\0") == "\\x1b[31mred\\x07\\x00"
    assert printable("abc\u202edef\u2066") == "abc\\u202edef\\u2066"
    assert printable("line\u2028break\u200b") == "line\\u2028break\\u200b"
    assert printable("\ud800") == "\\ud800"
    assert printable("\U000e0041") == "\\U000e0041"


def test_a_time_is_shown_to_the_second_and_in_utc() -> None:
    moment = datetime(2026, 11, 16, 17, 16, 16, 16_469, tzinfo=timezone(timedelta(hours=1)))
    assert in_utc(moment) == "2026-11-16 16:16:16 UTC"
    assert in_utc(None) == "no time"


def test_long_text_is_cut_and_says_so() -> None:
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 203) == "x" * 200 + "… (+3 characters)"
    assert printable("abcdef", limit=4) == "abcd… (+2 characters)"


@given(st.text())
def test_the_result_is_always_one_visible_line_of_bounded_length(text: str) -> None:
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
def test_invariant_34_a_key_is_hidden_where_a_header_shows_it(text: str, shown_as: str) -> None:
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
def test_sizes_are_written_as_people_read_them(count: int, read: str) -> None:
    assert in_bytes(count) == read
