"""Calls to a provider that answers as a script says, by either way there is to a provider."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Any

import httpx
import pytest

from support.raw_server import Script, raw_server
from tileferry.adapters.http import (
    FastLane,
    HttpTileProvider,
    HttpxLane,
    ProviderAddress,
    ResponseLimits,
    new_client,
)
from tileferry.adapters.http.lanes import Lane
from tileferry.adapters.system import SystemClock
from tileferry.domain.errors import InvalidValueError, SatelliteProviderError
from tileferry.domain.tiles import BBox, ListingLimits, TileId

TILE = TileId(source="satellite", zoom=14, x=9_830, y=5_544)
AREA = BBox(west=36.0, south=50.0, east=36.1, north=50.1)
KEY = "canary-7d1e0f55"
TIGHT = ResponseLimits(tile_bytes_max=10_000, deadline_s=1.0, rate_bytes_s_min=1_000.0, grace_s=0.3)
IMAGE = "HTTP/1.1 200 OK\nContent-Type: image/png\nContent-Length: {}"
Call = Callable[[HttpTileProvider], Any]


def fetch(provider: HttpTileProvider) -> Any:
    """Ask for a tile."""
    return provider.fetch_tile(TILE)


def list_page(provider: HttpTileProvider) -> Any:
    """Ask for a page of the listing."""
    return provider.listing_page(AREA, [14], None)


def asked(url: str, call: Call = fetch, *, limits: ResponseLimits = TIGHT, **options: Any) -> Any:
    """Make the call to the provider there, by the chosen way."""
    address = ProviderAddress(url=url, service_api_key=KEY, timeout_s=0.5, **options)
    with new_client(address) as client:
        lane = LANES[_chosen[-1]](client, address)
        return call(
            HttpTileProvider(
                client=client,
                lane=lane,
                clock=SystemClock(),
                limits=limits,
                listing_limits=ListingLimits(page_bytes_max=20_000),
            )
        )


LANES: dict[str, Callable[[httpx.Client, ProviderAddress], Lane]] = {
    "httpx": lambda client, _: HttpxLane(client),
    "fast": lambda _, address: FastLane(address),
}
_chosen = ["httpx"]


@contextmanager
def by_lane(name: str) -> Iterator[None]:
    """Take that way for the calls inside the block."""
    _chosen.append(name)
    yield
    _chosen.pop()


def refused(
    script: Script, call: Call = fetch, *, limits: ResponseLimits = TIGHT
) -> SatelliteProviderError:
    """Return the error that a call to such a provider ends with, in time."""
    begun_s = time.monotonic()
    with raw_server(script) as server, pytest.raises(SatelliteProviderError) as failure:
        asked(server.url, call, limits=limits)
    assert time.monotonic() - begun_s < 4
    assert KEY not in repr(failure.value) + str(failure.value)
    # httpx's own error holds the request with its headers: it must not hang on to ours.
    assert isinstance(failure.value.__context__, InvalidValueError | NoneType)
    return failure.value
