"""Addresses of documents that describe tile servers."""

import pytest

from tileferry.domain.addresses import is_public_address
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.server_url import ServerUrl


def test_key_is_filled_in_or_hidden() -> None:
    url = ServerUrl("https://Maps.example.org/tiles.json?key={api_key}&v=1")
    assert url.fill_in_key("a+b") == "https://Maps.example.org/tiles.json?key=a%2Bb&v=1"
    assert url.fill_in_key() == "https://Maps.example.org/tiles.json?key=***&v=1"
    assert (url.source, url.has_key) == ("xyz-maps.example.org", True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://maps.example.org/{z}.json", "unknown placeholder, {z}"),
        ("https://maps.example.org/{.json", "an unmatched brace"),
        ("maps.example.org", "write it as https://tiles.example.org/tiles.json"),
        ("https://maps.example.org/a?key=canary", "seems to contain a key"),
        ("http://maps.example.org/a", "over plain http"),
    ],
)
def test_invalid_address_is_rejected_without_leaking_it(text: str, said: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        ServerUrl(text, setting="xyz.wmts_url")
    assert refused.value.field == "xyz.wmts_url"
    assert said in f"{refused.value} {refused.value.remedy}"
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8.8.8.8", True), ("2606:4700::1111", True), ("192.168.1.2", False), ("::1", False),
     ("fd00::1", False), ("nas", False)],
)  # fmt: skip
def test_public_addresses_are_recognised(text: str, *, expected: bool) -> None:
    assert is_public_address(text) is expected
