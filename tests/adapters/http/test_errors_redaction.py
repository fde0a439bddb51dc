"""A key that is repeated to us is not shown, in whichever form it comes."""

import pytest

from tileferry.adapters.http.errors import redact_key

KEY = "CaNary/ab+cd&EFGH=="


@pytest.mark.parametrize(
    "repeated",
    [
        KEY,
        KEY.upper(),
        "CaNary%2Fab%2Bcd%26EFGH%3D%3D",
        "CaNary/ab%2Bcd%26EFGH%3D%3D",
        r"CaNary\/ab+cd&EFGH==",
        "CaNary/ab+cd&amp;EFGH==",
    ],
)
def test_invariant_34_every_encoding_of_the_key_is_redacted(repeated: str) -> None:
    assert redact_key(f'{{"key": "{repeated}"}}', KEY) == '{"key": "***"}'


def test_text_is_unchanged_without_a_key() -> None:
    assert redact_key("as it was", "") == "as it was"
