"""The imagery provider."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Protocol, TypeAlias, runtime_checkable

from attrs import define, frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import BBox, ListingPage, TileId, TileValidators


@frozen(kw_only=True)
class FetchedTile:
    """A complete tile, checked against the digest that the provider sent with it, if any."""

    tile_id: TileId
    content: bytes
    produced_at: datetime | None = None
    """``None`` if the response does not contain it; then the listing's date is used."""
    resolution_m_per_px: float | None = None
    sha256: bytes | None = None
    """The digest of ``content``, computed while it was read; ``None`` if not computed."""
    validators: TileValidators | None = None
    """How the server recognizes this version of the tile, if it says so."""
    origin: str | None = None
    """The source that delivered it, if not the one in its id."""
    attempts: int = 1
    """The number of calls, as in the errors of a call; a provider always returns 1."""


@frozen(kw_only=True)
class UnchangedTile:
    """The answer to a conditional request: the provider still has the version that is stored."""

    tile_id: TileId
    attempts: int = 1


@define(eq=False)
class TileRequest:
    """A tile to fetch; the same object comes back with its result."""

    tile_id: TileId
    unless: TileValidators | None
    """The stored version: the server may answer that it still has it."""


FetchResult: TypeAlias = FetchedTile | UnchangedTile | Exception
FetchOutcome: TypeAlias = tuple[TileRequest, FetchResult]


class TileFetches(Protocol):
    """Fetches several tiles at a time, without retries. Used by one thread.

    It does not limit the number of requests: the caller keeps to the pace.
    """

    def start(self, request: TileRequest) -> None:
        """Begin to fetch a tile; ``wait`` returns its result, an error included."""
        ...

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:
        """Return the results that have arrived; wait at most ``timeout_s`` for the first."""
        ...

    def close(self) -> None:
        """Abort the fetches that have not ended."""
        ...


class TileProvider(Protocol):
    """Calls the provider, without retries. Failures raise ``SatelliteProviderError`` with a fault.

    Thread-safe.
    """

    @property
    def source(self) -> str:
        """The source of its tiles in the cache."""
        ...

    @property
    def key_hash(self) -> str:
        """A hash that distinguishes accounts without revealing the key."""
        ...

    @property
    def lists_versions(self) -> bool:
        """Whether the listing shows that a tile has changed, by its date or its digest."""
        ...

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Return one page of an area's listing."""
        ...

    def fetch_tile(
        self, tile_id: TileId, *, unless: TileValidators | None = None
    ) -> FetchedTile | UnchangedTile:
        """Return one tile, unless the server recognizes ``unless`` as its current version."""
        ...

    def open_fetches(self) -> TileFetches:
        """Return a way to fetch many tiles, several at a time."""
        ...


@runtime_checkable
class DatedTileProvider(TileProvider, Protocol):
    """A provider that has the imagery of past dates."""

    def for_date(self, day: date) -> TileProvider:
        """Return a provider of the imagery of one day."""
        ...
