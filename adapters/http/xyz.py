"""A plain tile server, ``https://host/{z}/{x}/{y}.png``, as a provider of tiles."""

from collections.abc import Sequence
from threading import Lock

from attrs import define, evolve, field

from tileferry.adapters.http.client import mask_secret
from tileferry.adapters.http.fetches import TileTransport, fetch_tile, open_fetches
from tileferry.adapters.http.session import NOT_MODIFIED, ProviderSession
from tileferry.adapters.http.transport import ResponseLimits, TransportResponse
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.provider import (
    FetchedTile,
    TileFetches,
    TileRequest,
    UnchangedTile,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.redaction import redact_key, redact_likely_keys
from tileferry.domain.tiles import (
    BBox,
    ListingPage,
    ProviderFault,
    RequestSpacing,
    TileCoverage,
    TileId,
    TileServer,
    TileValidators,
)


@define(kw_only=True, eq=False)
class XyzTileProvider:
    """Fetches tiles from a server one at a time, at a limited rate; computes the listing itself.

    The constructor rejects servers whose terms forbid bulk downloads.
    """

    server: TileServer
    lane: TileTransport
    """Sends requests to the server's origin, without a key: a key is part of the URL template.

    With a key, use ``CurlTransport``: httpx logs every URL when its logger is enabled.
    """
    clock: Clock
    api_key: str = field(default="", repr=mask_secret)
    source: str = "satellite"
    states_facts: bool = False
    """Whether tiles have their date and resolution, because the listing is of another server."""
    limits: ResponseLimits = field(factory=ResponseLimits)
    session: ProviderSession = field(init=False)
    _spacing: RequestSpacing = field(init=False)
    _turn: Lock = field(factory=Lock, init=False)

    @session.default
    def _make_session(self) -> ProviderSession:
        limits = evolve(self.limits, is_plain_server=True)
        return ProviderSession(clock=self.clock, limits=limits, secret=self.api_key)

    @_spacing.default
    def _make_spacing(self) -> RequestSpacing:
        return self.server.spacing

    def __attrs_post_init__(self) -> None:
        self.server.check_permitted()
        self.server.template.check_key(self.api_key)

    @property
    def key_hash(self) -> str:
        """A hash that distinguishes accounts, servers and dates without revealing the key."""
        return self.server.compute_identity(self.api_key)

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Compute one page of an area's listing, without a request."""
        coverage = TileCoverage(bbox=bbox, zoom_levels=zoom_levels)
        return self.server.list_page(coverage, cursor, source=self.source)

    @property
    def lists_versions(self) -> bool:
        """The listing is computed, so it does not show whether a tile has changed."""
        return False

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Fetch one tile, after waiting for the rate limit."""
        return fetch_tile(self, TileRequest(tile_id, unless))

    def open_fetches(self) -> TileFetches:
        """Return a way to fetch many tiles, several at a time."""
        return open_fetches(self)

    def take_turn(self) -> float:
        """Return how long to wait for the rate limit; concurrent callers get later slots."""
        with self._turn:
            wait_s, self._spacing = self._spacing.take_turn(self.clock.monotonic())
        return wait_s

    def build_target(self, request: TileRequest) -> tuple[str, dict[str, str] | None]:
        """Return the URL of a tile, and the headers of a conditional request."""
        absence = self.server.find_absence(request.tile_id)
        if absence is not None:
            raise SatelliteProviderError(
                reason=absence,
                url=self.describe_url(request.tile_id),
                fault=ProviderFault.NOT_FOUND,
            )
        url = self.server.template.build_url(request.tile_id, key=self.api_key)
        return url, None if request.unless is None else _build_condition(request.unless)

    def describe_url(self, tile_id: TileId) -> str:
        """Return the URL of a tile, without keys."""
        return redact_likely_keys(self.server.template.build_url(tile_id))

    def read_tile(
        self, tile_id: TileId, answer: TransportResponse, started_s: float
    ) -> FetchedTile | UnchangedTile:
        """Return the tile in a response, with what identifies its version."""
        if answer.status == NOT_MODIFIED:
            return UnchangedTile(tile_id=tile_id)
        content, digest, picture = self.session.read_tile(answer, started_s)
        known = self.server.summarize(tile_id) if self.states_facts else None
        resolution = self.server.compute_resolution(tile_id, picture.width_px)
        if resolution is None and known is not None:
            resolution = known.resolution_m_per_px
        return FetchedTile(
            tile_id=tile_id,
            content=content,
            produced_at=None if known is None else known.produced_at,
            resolution_m_per_px=resolution,
            sha256=digest,
            validators=TileValidators.from_headers(
                *(self._get_validator(answer, name) for name in ("etag", "last-modified"))
            ),
        )

    def _get_validator(self, answer: TransportResponse, name: str) -> str | None:
        """Return a header, unless it repeats the key: it will be stored."""
        text = answer.header(name)
        return None if text and redact_key(text, self.api_key) != text else text


def _build_condition(unless: TileValidators) -> dict[str, str]:
    """Return the headers of a conditional request."""
    named = {"If-None-Match": unless.etag, "If-Modified-Since": unless.last_modified}
    return {name: text for name, text in named.items() if text is not None}
