"""A tile server configured by the document that describes it, which is read at first use."""

from collections.abc import Callable, Sequence
from threading import Lock

from attrs import define, evolve, field

from tileferry.adapters.http.client import mask_secret
from tileferry.adapters.http.curl_transport import CurlTransport
from tileferry.adapters.http.fetches import fetch_document
from tileferry.adapters.http.session import ProviderSession
from tileferry.adapters.http.transport import ResponseLimits
from tileferry.adapters.http.xyz import XyzTileProvider
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.provider import FetchedTile, TileFetches, UnchangedTile
from tileferry.domain.errors import InvalidValueError, ResponseSchemaError
from tileferry.domain.redaction import redact_likely_keys
from tileferry.domain.tiles import (
    BBox,
    ListingPage,
    ProviderFault,
    TileId,
    TileServer,
    TileValidators,
)
from tileferry.domain.tiles.server_url import ServerUrl

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024


@define(kw_only=True, eq=False)
class DescribedTileProvider:
    """Reads the document when it is first needed, so that a failure is retried like any other.

    The identity of a download comes from the settings, so a document that changes does not
    restart downloads.
    """

    document: ServerUrl
    read_server: Callable[[bytes], TileServer] = field(repr=False)  # it contains the key
    """Returns the server that a document describes; raises ``InvalidValueError``."""
    key_hash: str
    """A hash that distinguishes accounts, servers and dates without revealing the key."""
    lane: CurlTransport
    clock: Clock
    api_key: str = field(default="", repr=mask_secret)
    source: str = "satellite"
    states_facts: bool = False
    limits: ResponseLimits = field(factory=ResponseLimits)
    _provider: XyzTileProvider | None = field(default=None, init=False)
    _reading: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.document.check_key(self.api_key)

    @property
    def lists_versions(self) -> bool:
        """The listing is computed, so it does not show whether a tile has changed."""
        return False

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Compute one page of an area's listing."""
        return self.open().fetch_listing_page(bbox, zoom_levels, cursor)

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Fetch one tile, after waiting for the rate limit."""
        return self.open().fetch_tile(tile_id, unless=unless)

    def open_fetches(self) -> TileFetches:
        """Return a way to fetch many tiles, several at a time."""
        return self.open().open_fetches()

    @property
    def server(self) -> TileServer:
        """The server that the document describes."""
        return self.open().server

    def open(self) -> XyzTileProvider:
        """Return the provider of the tiles, after reading the document once."""
        with self._reading:
            if self._provider is None:
                self._provider = XyzTileProvider(
                    server=self._read_document(),
                    lane=self.lane,
                    clock=self.clock,
                    api_key=self.api_key,
                    source=self.source,
                    states_facts=self.states_facts,
                    limits=self.limits,
                )
            return self._provider

    def _read_document(self) -> TileServer:
        limits = evolve(
            self.limits, is_plain_server=True, family="", tile_bytes_max=DOCUMENT_BYTES_MAX
        )
        session = ProviderSession(clock=self.clock, limits=limits, secret=self.api_key)
        shown = redact_likely_keys(self.document.fill_in_key())
        content = fetch_document(
            session, self.lane, self.document.fill_in_key(self.api_key), shown=shown
        )
        try:
            return self.read_server(content)
        except InvalidValueError as error:
            if error.field.startswith("xyz."):
                raise
            raise ResponseSchemaError(
                reason=f"cannot use the description of the server: {error}",
                url=shown,
                field=error.field,
                fault=ProviderFault.SCHEMA,
            ) from None
