"""A key that the provider repeats is in no error, wherever and in whichever form it comes."""

import json
import traceback
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile_provider import PICTURE, Call, fetch_tile, list_page
from support.key_echo import ENCODINGS, find_key

from tileferry.adapters.http import HttpTileProvider, ProviderAddress, new_client
from tileferry.adapters.memory import ManualClock
from tileferry.domain.errors import SatelliteProviderError

KEY = "Canary-7d1e/0f55+aB9"
Reply = Callable[[str], httpx.Response]


def fail(status: int, **headers: str) -> Reply:
    return lambda echo: httpx.Response(status, text=f"what is {echo}?", headers=headers)


def reply_image(name: str) -> Reply:
    """Return a reply with the key in a header."""

    def reply(echo: str) -> httpx.Response:
        value = echo.replace("\r", " ").replace("\n", " ").encode("ascii", "replace")
        headers = {b"content-type": b"image/png", name.encode(): value}
        return httpx.Response(200, content=PICTURE, headers=headers)

    return reply


def reply_listing(build: Callable[[str], str]) -> Reply:
    kind = {"content-type": "application/json"}
    return lambda echo: httpx.Response(200, text=build(echo), headers=kind)


def reply_phrase(echo: str) -> httpx.Response:
    phrase = echo.replace("\r", " ").replace("\n", " ").encode("ascii", "replace")
    return httpx.Response(500, extensions={"reason_phrase": phrase})


REPLIES: dict[str, tuple[Call, Reply]] = {
    "401": (fetch_tile, fail(401)),
    "404": (fetch_tile, fail(404)),
    "429": (fetch_tile, fail(429)),
    "503 of the listing": (list_page, fail(503)),
    "phrase": (fetch_tile, reply_phrase),
    "content type": (fetch_tile, reply_image("content-type")),
    "content encoding": (fetch_tile, reply_image("content-encoding")),
    "content length": (fetch_tile, reply_image("content-length")),
    "date": (fetch_tile, reply_image("x-produced-at")),
    "resolution": (fetch_tile, reply_image("x-resolution-m-per-px")),
    "not JSON": (list_page, reply_listing(str)),
    "name": (list_page, reply_listing(lambda echo: f'{{"tiles": [], {json.dumps(echo)}: NaN}}')),
    "key twice": (
        list_page,
        reply_listing(
            lambda echo: f'{{"tiles": [], {json.dumps(echo)}: 1, {json.dumps(echo)}: 2}}'
        ),
    ),
    "value": (list_page, reply_listing(lambda echo: json.dumps({"tiles": [{"z": echo}]}))),
    "cursor": (list_page, reply_listing(lambda echo: json.dumps({"tiles": [], "next": [echo]}))),
}


@pytest.mark.parametrize("place", REPLIES)
@settings(max_examples=len(ENCODINGS), deadline=None, database=None)
@given(encoding=st.sampled_from(sorted(ENCODINGS)), padding=st.integers(0, 520))
def test_invariant_34_repeated_key_is_in_no_error(place: str, encoding: str, padding: int) -> None:
    call, reply = REPLIES[place]
    echo = "." * padding + ENCODINGS[encoding](KEY)
    address = ProviderAddress(url="http://localhost:9", service_api_key=KEY)
    transport = httpx.MockTransport(lambda _request: reply(echo))
    with new_client(address, transport=transport) as client:
        provider = HttpTileProvider(client=client, clock=ManualClock())
        with pytest.raises(SatelliteProviderError) as failure:
            call(provider)
    error = failure.value
    shown = f"{error} {error!r} {''.join(traceback.format_exception(error))}"
    assert find_key(shown, KEY) is None
    assert find_key(repr(provider), KEY) is None
