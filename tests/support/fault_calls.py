"""The calls of a provider, as the tests of its faults make them."""

from collections.abc import Callable

import httpx

from support.provider import RunningProvider

TILES = "/api/satellite/tiles"
TILE = f"{TILES}/15/19679/11098"
AREA = {"bbox": "36.10,49.95,36.20,50.02", "zoom": "14,15", "list-only": "true"}
CAPTURE = "cam/15/19000/11000"

Sees = Callable[[RunningProvider, httpx.Client], None]
SEEN: dict[str, Sees] = {}


def sees(*names: str) -> Callable[[Sees], Sees]:
    """Enter a check under the names of the faults that it sees."""

    def enter(check: Sees) -> Sees:
        SEEN.update(dict.fromkeys(names, check))
        return check

    return enter


def listing(client: httpx.Client, **more: str) -> httpx.Response:
    """Ask for a page of the listing."""
    return client.get(TILES, params={**AREA, **more})


def last_fault(provider: RunningProvider) -> tuple[str | None, int | None]:
    """Return what the provider notes of the last request: its fault, and its status."""
    line = provider.requests[-1]
    return line.fault, line.status
