"""The provider's calls over httpx: one request each, one answer, checked."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import TypeVar

import httpx
from attrs import define, evolve, field

from tileferry.adapters.http.errors import answered
from tileferry.adapters.http.lanes import Answer, HttpxLane, Lane
from tileferry.adapters.http.responses import (
    ResponseLimits,
    body_of,
    check_content_type,
    check_digest,
    excerpt_of,
)
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.provider import FetchedTile
from tileferry.application.provider_calls import schema_error
from tileferry.domain.errors import InvalidValueError, SatelliteProviderError
from tileferry.domain.retry import parse_retry_after
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ListingPage,
    TileId,
    fault_of_status,
    moment_of,
    parse_listing_page,
)

Result = TypeVar("Result")
TILES_PATH = "/api/satellite/tiles"
RETRY_AFTER_S_MAX = 24 * 3600.0
"""What is taken down; how much of it is waited is the policy's to say."""
_OK = 200


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

    @lane.default
    def _through_the_client(self) -> Lane:
        return HttpxLane(self.client)

    @property
    def key_hash(self) -> str:
        """What tells two accounts apart, without giving the key away."""
        return sha256(self._authorization.encode()).hexdigest()

    def url_of(self, tile_id: TileId) -> str:
        """Return where a tile is."""
        return f"{str(self.client.base_url).rstrip('/')}{_path_of(tile_id)}"

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
        bytes_max = self.listing_limits.page_bytes_max
        content = self._get(TILES_PATH, partial(self._listing_body, bytes_max=bytes_max), query)
        try:
            return parse_listing_page(content, source=self.source, bytes_max=bytes_max)
        except InvalidValueError as error:
            raise evolve(schema_error(error), url=self._url(TILES_PATH)) from None

    def fetch_tile(self, tile_id: TileId) -> FetchedTile:
        """Ask for one tile."""
        return self._get(_path_of(tile_id), partial(self._tile_of, tile_id))

    def _tile_of(self, tile_id: TileId, answer: Answer, started_s: float) -> FetchedTile:
        check_content_type(answer, family="image/")
        content = self._body(answer, started_s, self.limits.tile_bytes_max)
        check_digest(answer, content)
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
            )
        except InvalidValueError as error:
            raise evolve(schema_error(error), url=answer.url) from None

    def _listing_body(self, answer: Answer, started_s: float, *, bytes_max: int) -> bytes:
        check_content_type(answer, family="application/json")
        return self._body(answer, started_s, bytes_max)

    def _body(self, answer: Answer, started_s: float, bytes_max: int) -> bytes:
        return body_of(
            answer, bytes_max=bytes_max, limits=self.limits, clock=self.clock, started_s=started_s
        )

    def _get(
        self,
        path: str,
        read: Callable[[Answer, float], Result],
        query: Mapping[str, str] | None = None,
    ) -> Result:
        """Make a request and have its answer read while it is open."""

        def call() -> Result:
            started_s = self.clock.monotonic()
            with self.lane.get(path, query) as answer:
                if answer.status != _OK:
                    raise self._refusal(answer)
                return read(answer, started_s)

        return answered(call, self._url(path))

    def _refusal(self, answer: Answer) -> SatelliteProviderError:
        return SatelliteProviderError(
            reason=answer.reason.lower() or "refused",
            url=answer.url,
            status=answer.status,
            body_excerpt=excerpt_of(answer, secret=self._authorization.rpartition(" ")[2]),
            fault=fault_of_status(answer.status),
            retry_after_s=parse_retry_after(
                answer.header("retry-after"),
                now=datetime.fromtimestamp(self.clock.now(), UTC),
                cap_s=RETRY_AFTER_S_MAX,
            ),
        )

    def _url(self, path: str) -> str:
        return f"{str(self.client.base_url).rstrip('/')}{path}"

    @property
    def _authorization(self) -> str:
        return str(self.client.headers.get("authorization", "Bearer none"))


def _path_of(tile_id: TileId) -> str:
    return f"{TILES_PATH}/{tile_id.zoom}/{tile_id.x}/{tile_id.y}"


def _number_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(
            field="X-Resolution-M-Per-Px", value=text, problem="must be a number"
        ) from None
