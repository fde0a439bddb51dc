"""The provider's calls over httpx: one request each, one answer, checked."""

import math
import re
from collections.abc import Sequence
from functools import partial
from hashlib import sha256

import httpx
from attrs import define, evolve, field

from tileferry.adapters.http.asking import Asking
from tileferry.adapters.http.lanes import Answer, HttpxLane, Lane
from tileferry.adapters.http.refusals import authorization_of, key_of
from tileferry.adapters.http.responses import ResponseLimits, check_content_type
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.provider import FetchedTile
from tileferry.application.transfers.provider_calls import schema_error
from tileferry.domain.checks import moment_of
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ListingPage,
    TileId,
    parse_listing_page,
)

TILES_PATH = "/api/satellite/tiles"
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


@define(kw_only=True)
class HttpTileProvider:
    """Asks through a client that knows the address and the key."""

    client: httpx.Client
    clock: Clock
    source: str = "satellite"
    limits: ResponseLimits = field(factory=ResponseLimits)
    listing_limits: ListingLimits = field(factory=ListingLimits)
    lane: Lane = field()
    """What the requests go through; the client itself, where no other is given."""

    _asking: Asking = field(init=False)

    @lane.default
    def _through_the_client(self) -> Lane:
        return HttpxLane(self.client)

    @_asking.default
    def _with_the_key(self) -> Asking:
        return Asking(clock=self.clock, limits=self.limits, secret=key_of(self.client))

    @property
    def key_hash(self) -> str:
        """What tells two accounts apart, without giving the key away."""
        return sha256(authorization_of(self.client).encode()).hexdigest()

    def listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Ask for one page of an area's listing."""
        query = {
            "bbox": str(bbox),
            "zoom": ",".join(map(str, zoom_levels)),
            "list-only": "true",
            **({} if cursor is None else {"cursor": cursor}),
        }
        # Whoever lists waits for it in the main thread, where a signal must reach it: through the
        # client, which waits in Python.
        lane = HttpxLane(self.client)
        url = partial(self._url, TILES_PATH)
        return self._asking.get(lane, TILES_PATH, self._page_of, url=url, query=query)

    def fetch_tile(self, tile_id: TileId) -> FetchedTile:
        """Ask for one tile."""
        path = _path_of(tile_id)
        read = partial(self._tile_of, tile_id)
        return self._asking.get(self.lane, path, read, url=partial(self._url, path))

    def _tile_of(self, tile_id: TileId, answer: Answer, started_s: float) -> FetchedTile:
        content, digest = self._asking.picture(answer, started_s)
        resolution = answer.header("x-resolution-m-per-px")
        produced_at = answer.header("x-produced-at")
        try:
            return FetchedTile(
                tile_id=tile_id,
                content=content,
                resolution_m_per_px=None if resolution is None else _number_of(resolution),
                produced_at=None
                if produced_at is None
                else moment_of(produced_at, field="X-Produced-At"),
                sha256=digest,
            )
        except InvalidValueError as error:
            raise evolve(schema_error(error), url=answer.url) from None

    def _page_of(self, answer: Answer, started_s: float) -> ListingPage:
        check_content_type(answer, family="application/json")
        bytes_max = self.listing_limits.page_bytes_max
        content = self._asking.body(answer, started_s, bytes_max)
        try:
            return parse_listing_page(content, source=self.source, bytes_max=bytes_max)
        except InvalidValueError as error:
            raise evolve(schema_error(error), url=answer.url) from None

    def _url(self, path: str) -> str:
        return f"{str(self.client.base_url).rstrip('/')}{path}"


def _path_of(tile_id: TileId) -> str:
    return f"{TILES_PATH}/{tile_id.zoom}/{tile_id.x}/{tile_id.y}"


def _number_of(text: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < number < math.inf:
        raise InvalidValueError(
            field="X-Resolution-M-Per-Px", value=text, problem="must be a number above 0"
        )
    return number
