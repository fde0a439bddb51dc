"""A key that is repeated to us is not shown, in whichever form it comes."""

import pytest

from tileferry.adapters.http.hiding import without_key

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
def test_invariant_34_no_form_of_the_key_is_shown(repeated: str) -> None:
    assert without_key(f'{{"key": "{repeated}"}}', KEY) == '{"key": "***"}'


def test_without_a_key_there_is_nothing_to_hide() -> None:
    assert without_key("as it was", "") == "as it was"
