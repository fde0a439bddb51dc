"""The kinds of providers that there are, each asked over real HTTP."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve

from tileferry.adapters.http import (
    CurlTransport,
    HttpTileProvider,
    HttpxTransport,
    ProviderAddress,
    ResponseLimits,
    XyzTileProvider,
    new_client,
)
from tileferry.adapters.system import SystemClock
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.provider import FetchedTile, TileProvider
from tileferry.domain.tiles import RequestSpacing, TileId, TileServer, TileTemplate, TileValidators

KEY = "canary-api-key"
"""Also the one of the reference provider."""
PATIENT_LIMITS = ResponseLimits(tile_bytes_max=60_000)
"""For servers that answer: how fast the tests' machine is must not matter."""
TIGHT_LIMITS = evolve(PATIENT_LIMITS, deadline_s=1.0, rate_bytes_s_min=1_000.0, grace_s=0.3)
"""For those that do not."""


def create_tile_server(url: str, *, path: str = "/xyz/{z}/{x}/{y}.jpg", **said: Any) -> TileServer:
    """Describe the plain tile server at an address."""
    template = TileTemplate(f"{url}{path}")
    return TileServer(
        **{
            "template": template,
            "attribution": "© Example",
            "licence": "CC-BY-4.0",
            "imagery_date": date(2026, 10, 1),
            "acknowledged_for": template.host_and_port,
            "spacing": RequestSpacing(max_per_s=100.0),
            **said,
        }
    )


@contextmanager
def open_satellite_provider(
    url: str,
    *,
    key: str = KEY,
    limits: ResponseLimits = PATIENT_LIMITS,
    timeout_s: float = 10.0,
    clock: Clock | None = None,
    httpx: bool = False,
) -> Iterator[TileProvider]:
    """Make what asks a satellite-provider."""
    address = ProviderAddress(url=url, service_api_key=key, timeout_s=timeout_s)
    with new_client(address) as client:
        lane = CurlTransport(address)
        yield HttpTileProvider(
            client=client,
            lane=HttpxTransport(client) if httpx else lane,
            clock=clock or SystemClock(),
            limits=limits,
        )
        lane.close()


@contextmanager
def open_xyz_provider(
    url: str,
    *,
    key: str = KEY,
    limits: ResponseLimits = PATIENT_LIMITS,
    timeout_s: float = 10.0,
    clock: Clock | None = None,
    httpx: bool = False,
    ca_file: Path | None = None,
    **said: Any,
) -> Iterator[TileProvider]:
    """Make what asks a plain tile server; its key, if it has a place for one, is in the path."""
    said.setdefault("path", "/xyz/{z}/{x}/{y}.jpg?key={api_key}")
    server = create_tile_server(url, **said)
    address = ProviderAddress(
        url=server.template.origin, service_api_key=None, timeout_s=timeout_s, ca_file=ca_file
    )
    with new_client(address) as client:
        lane = CurlTransport(address)
        yield XyzTileProvider(
            server=server,
            lane=HttpxTransport(client) if httpx else lane,
            clock=clock or SystemClock(),
            api_key=key,
            limits=limits,
        )
        lane.close()


KINDS: dict[str, Callable[..., AbstractContextManager[TileProvider]]] = {
    "satellite": open_satellite_provider,
    "satellite, httpx": partial(open_satellite_provider, httpx=True),
    "xyz": open_xyz_provider,
}


def fetch_whole_tile(
    provider: TileProvider, tile_id: TileId, unless: TileValidators | None = None
) -> FetchedTile:
    """Fetch a tile that must not be answered as unchanged."""
    tile = provider.fetch_tile(tile_id, unless=unless)
    assert isinstance(tile, FetchedTile)
    return tile
