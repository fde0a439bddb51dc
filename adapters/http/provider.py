"""The provider's listing and tile calls, and a probe that checks whether it is reachable."""

import math
import re
import ssl
from collections.abc import Sequence
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256

import httpx
from attrs import define, evolve, field, frozen

from tileferry.adapters.http.deadlines import call_within
from tileferry.adapters.http.errors import call_translating_errors
from tileferry.adapters.http.fetches import TileTransport, fetch_tile, open_fetches
from tileferry.adapters.http.listing_format import parse_listing_page
from tileferry.adapters.http.responses import (
    check_content_type,
    get_api_key,
    get_authorization,
)
from tileferry.adapters.http.session import ProviderSession
from tileferry.adapters.http.transport import HttpxTransport, ResponseLimits, TransportResponse
from tileferry.application.download.provider_calls import to_schema_error
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.provider import (
    FetchedTile,
    TileFetches,
    TileRequest,
    UnchangedTile,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ListingPage,
    TileId,
    TileValidators,
)
from tileferry.domain.validation import parse_datetime

TILES_PATH = "/api/satellite/tiles"
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


@define(kw_only=True)
class HttpTileProvider:
    """Fetches listings and tiles through a client that has the provider's address and key."""

    client: httpx.Client
    clock: Clock
    source: str = "satellite"
    limits: ResponseLimits = field(factory=ResponseLimits)
    listing_limits: ListingLimits = field(factory=ListingLimits)
    lane: TileTransport = field()
    """Transport for tile requests; by default the httpx client."""
    day: date | None = None
    """The date of the imagery; ``None`` for the provider's current imagery."""

    session: ProviderSession = field(init=False)

    @lane.default
    def _make_transport(self) -> TileTransport:
        return HttpxTransport(self.client)

    @session.default
    def _make_session(self) -> ProviderSession:
        return ProviderSession(
            clock=self.clock, limits=self.limits, secret=get_api_key(self.client)
        )

    @property
    def key_hash(self) -> str:
        """A hash that distinguishes accounts without revealing the key."""
        return sha256(get_authorization(self.client).encode()).hexdigest()

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Fetch one page of an area's listing."""
        query = {
            "bbox": str(bbox),
            "zoom": ",".join(map(str, zoom_levels)),
            "list-only": "true",
            **({} if cursor is None else {"cursor": cursor}),
            **({} if self.day is None else {"date": self.day.isoformat()}),
        }
        # Listings are fetched in the main thread, which must stay interruptible by signals. httpx
        # waits in Python, so it is.
        lane = HttpxTransport(self.client)
        url = partial(self._url, TILES_PATH)
        return self.session.get(lane, TILES_PATH, self._read_page, url=url, query=query)

    @property
    def lists_versions(self) -> bool:
        """Its listing has the date of each tile."""
        return True

    def fetch_tile(
        self,
        tile_id: TileId,
        *,
        unless: TileValidators | None = None,
    ) -> FetchedTile | UnchangedTile:
        return fetch_tile(self, TileRequest(tile_id, unless))

    def open_fetches(self) -> TileFetches:
        """Return a way to fetch many tiles, several at a time."""
        return open_fetches(self)

    def take_turn(self) -> float:
        """Return 0: the only rate limit is the one that the provider requests."""
        return 0.0

    def build_target(self, request: TileRequest) -> tuple[str, None]:
        """Return the path of a tile; its listing shows what has changed."""
        path = _tile_path(request.tile_id)
        return path if self.day is None else f"{path}?date={self.day.isoformat()}", None

    def describe_url(self, tile_id: TileId) -> str:
        """Return the URL of a tile."""
        return self._url(_tile_path(tile_id))

    def for_date(self, day: date) -> "HttpTileProvider":
        """Return a provider of the imagery of one day, over the same connections."""
        return evolve(self, day=day)

    def read_tile(
        self, tile_id: TileId, answer: TransportResponse, started_s: float
    ) -> FetchedTile:
        """Return the tile in a response, with the data in its headers."""
        content, digest, _ = self.session.read_tile(answer, started_s)
        resolution = answer.header("x-resolution-m-per-px")
        produced_at = answer.header("x-produced-at")
        try:
            return FetchedTile(
                tile_id=tile_id,
                content=content,
                resolution_m_per_px=None if resolution is None else _parse_number(resolution),
                produced_at=None
                if produced_at is None
                else parse_datetime(produced_at, field="X-Produced-At"),
                sha256=digest,
            )
        except InvalidValueError as error:
            raise evolve(to_schema_error(error), url=answer.url) from None

    def _read_page(self, answer: TransportResponse, started_s: float) -> ListingPage:
        check_content_type(answer, family="application/json")
        bytes_max = self.listing_limits.page_bytes_max
        content = self.session.read_body(answer, started_s, bytes_max)
        try:
            return parse_listing_page(content, source=self.source, bytes_max=bytes_max)
        except InvalidValueError as error:
            raise evolve(to_schema_error(error), url=answer.url) from None

    def _url(self, path: str) -> str:
        return f"{str(self.client.base_url).rstrip('/')}{path}"


def _tile_path(tile_id: TileId) -> str:
    return f"{TILES_PATH}/{tile_id.zoom}/{tile_id.x}/{tile_id.y}"


def _parse_number(text: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < number < math.inf:
        raise InvalidValueError(
            field="X-Resolution-M-Per-Px", value=text, problem="must be a number above 0"
        )
    return number


PROBE_DEADLINE_S = 20.0
"""A provider that needs longer than this for a small response is too slow to download from."""


@frozen(kw_only=True)
class ProviderProbe:
    """The result of probing a provider."""

    status: int
    server: str
    date: datetime | None
    """The provider's time, from its ``Date`` header."""
    certificate_expires_at: datetime | None
    """``None`` without TLS."""


def probe_provider(
    client: httpx.Client, path: str, *, deadline_s: float = PROBE_DEADLINE_S
) -> ProviderProbe:
    """Send one request within a deadline, and read only the response's headers."""
    server = f"{client.base_url.scheme}://{client.base_url.netloc.decode()}"

    def ask() -> ProviderProbe:
        with client.stream("GET", path) as response:
            return ProviderProbe(
                status=response.status_code,
                server=server,
                date=_parse_date(response.headers.get("date", "")),
                certificate_expires_at=_get_certificate_expiry(response),
            )

    return call_translating_errors(
        lambda: call_within(deadline_s, ask), lambda: server, secret=get_api_key(client)
    )


def _parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # not a valid date
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _get_certificate_expiry(response: httpx.Response) -> datetime | None:
    connection = response.extensions["network_stream"].get_extra_info("ssl_object")
    if connection is None:
        return None
    return datetime.fromtimestamp(
        ssl.cert_time_to_seconds(connection.getpeercert()["notAfter"]), UTC
    )
