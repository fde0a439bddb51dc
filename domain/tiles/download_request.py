"""What an operator asks to be downloaded, and what the provider lists for it."""

import math
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePath

from attrs import field, frozen

from tileferry.domain.checks import (
    as_float,
    aware,
    check_fields,
    instance,
    integer,
    is_unicode,
    name,
    positive,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.blob import TILE_BYTES_MAX
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.freshness import SectorClass
from tileferry.domain.tiles.tile_id import TileId, normalised_zooms

REQUEST_HASH_DIGITS = 16


@frozen(kw_only=True)
class DownloadRequest:
    """An area for a flight; the order in which its zoom levels were given does not matter."""

    flight_id: str = field(validator=name)
    bbox: BBox = field(validator=instance(BBox))
    zoom_levels: tuple[int, ...] = field(converter=normalised_zooms)
    sector_class: SectorClass = field(validator=instance(SectorClass))
    cache_root: PurePath = field(validator=instance(PurePath))

    @property
    def coverage(self) -> TileCoverage:
        """The tiles that the area consists of."""
        return TileCoverage(bbox=self.bbox, zoom_levels=self.zoom_levels)

    def request_hash(self, service_api_key_hash: str) -> str:
        """Return what tells requests of one flight apart; the key's hash, never the key, goes in.

        The form must not change: a journal is found by this hash.
        """
        if not (service_api_key_hash and is_unicode(service_api_key_hash)):
            raise InvalidValueError(
                field="service_api_key_hash",
                value=type(service_api_key_hash).__name__,  # the value may be the key itself
                problem="must be non-empty text",
            )
        zooms = ",".join(str(zoom) for zoom in self.zoom_levels)
        identity = f"{self.bbox}|{zooms}|{self.sector_class.value}|{service_api_key_hash}"
        return sha256(identity.encode("utf-8")).hexdigest()[:REQUEST_HASH_DIGITS]

    def journal_name(self, service_api_key_hash: str) -> str:
        """Return the file name of this request's journal."""
        return f"{self.flight_id}__{self.request_hash(service_api_key_hash)}.json"


@frozen(kw_only=True)
class TileSummary:
    """One line of the provider's listing."""

    tile_id: TileId
    produced_at: datetime
    resolution_m_per_px: float = field(converter=as_float)
    estimated_bytes: int

    def __attrs_post_init__(self) -> None:
        if not (
            type(self.tile_id) is TileId
            and type(self.produced_at) is datetime
            and self.produced_at.tzinfo is UTC
            and type(self.resolution_m_per_px) is float
            and 0.0 < self.resolution_m_per_px < math.inf
            and type(self.estimated_bytes) is int
            and 0 <= self.estimated_bytes <= TILE_BYTES_MAX
        ):
            check_fields(self, _SUMMARY_CHECKS)


_SUMMARY_CHECKS = {
    "tile_id": instance(TileId),
    "produced_at": aware,
    "resolution_m_per_px": positive,
    "estimated_bytes": integer(0, TILE_BYTES_MAX),
}
