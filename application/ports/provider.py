"""The imagery provider."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from attrs import frozen

from tileferry.domain.tiles import BBox, ListingPage, TileId


@frozen(kw_only=True)
class FetchedTile:
    """A complete tile, checked against the digest that the provider sent with it, if any."""

    tile_id: TileId
    content: bytes
    produced_at: datetime | None = None
    """``None`` if the response does not say; then the listing counts."""
    resolution_m_per_px: float | None = None
    sha256: bytes | None = None
    """The digest of ``content``, computed while it was read; ``None`` if not computed."""
    attempts: int = 1
    """How many calls it took, as in the errors of a call; each call by itself is one."""


class TileProvider(Protocol):
    """One call each; what goes wrong is a ``SatelliteProviderError`` that names its fault.

    Any thread may call. Who retries is the caller.
    """

    @property
    def source(self) -> str:
        """The name that its tiles have in the cache."""
        ...

    @property
    def key_hash(self) -> str:
        """What tells two accounts apart, without giving the key away."""
        ...

    def fetch_listing_page(
        self, bbox: BBox, zoom_levels: Sequence[int], cursor: str | None
    ) -> ListingPage:
        """Return one page of what there is in an area."""
        ...

    def fetch_tile(self, tile_id: TileId) -> FetchedTile:
        """Return one tile."""
        ...
