"""A plain tile server: what its operator has said of it, and the listing that it cannot give."""

from datetime import UTC, date, datetime, time
from hashlib import sha256
from itertools import islice

from attrs import field, frozen

from tileferry.domain.checks import instance, integer, text
from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.domain.tiles.blob import TILE_BYTES_MAX
from tileferry.domain.tiles.bulk_policy import check_bulk_policy
from tileferry.domain.tiles.capture import ground_resolution
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.download_request import TileSummary
from tileferry.domain.tiles.listing import ListingPage
from tileferry.domain.tiles.request_spacing import RequestSpacing
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.tile_set import AREA_TILES_MAX
from tileferry.domain.tiles.tile_template import TileTemplate

ESTIMATED_TILE_BYTES = 25_000
TILES_PER_DOWNLOAD = 100_000
REQUESTS_PER_S = 5.0
"""What is usual where nothing is said: little enough for a server that serves many."""
PAGE_TILES = 1_000
_CURSOR_DIGITS_MAX = len(str(AREA_TILES_MAX))


@frozen(kw_only=True)
class TileServer:
    """Serves pictures and says nothing of them: neither what there is, nor how old it is."""

    template: TileTemplate = field(validator=instance(TileTemplate))
    attribution: str = field(validator=text)
    """Who is to be named wherever the pictures are shown."""
    licence: str = field(validator=text)
    imagery_date: date = field(validator=instance(date))
    """When the pictures were taken. ``Last-Modified`` says when a file was written, not that."""
    acknowledged_for: str | None = None
    """The host whose policy on bulk downloads was read, and allows them."""
    estimated_tile_bytes: int = field(
        default=ESTIMATED_TILE_BYTES, validator=integer(1, TILE_BYTES_MAX)
    )
    max_tiles_per_download: int = field(
        default=TILES_PER_DOWNLOAD, validator=integer(1, AREA_TILES_MAX)
    )
    spacing: RequestSpacing = field(factory=lambda: RequestSpacing(max_per_s=REQUESTS_PER_S))

    def check_permitted(self) -> None:
        """Refuse a server that must not be asked for many tiles."""
        check_bulk_policy(
            self.template.host,
            host_and_port=self.template.host_and_port,
            acknowledged_for=self.acknowledged_for,
        )

    def identity(self, key: str) -> str:
        """Return what tells downloads from two servers, or with two keys, or of two dates apart."""
        said = f"{self.template.text}|{self.imagery_date.isoformat()}|{key}"
        return sha256(said.encode()).hexdigest()

    def page(self, coverage: TileCoverage, cursor: str | None, *, source: str) -> ListingPage:
        """Return a page of what an area consists of; whether it is all there, fetching shows."""
        count = coverage.count
        if count > self.max_tiles_per_download:
            raise NotPermittedError(
                what=f"downloading {count:,} tiles from {self.template.host_and_port}",
                problem=f"xyz.max_tiles_per_download is {self.max_tiles_per_download:,}",
                remedy="ask for a smaller area or fewer zoom levels; or raise it, if that server's "
                "policy allows so many",
            )
        start = _start_of(cursor, count)
        tiles = islice(coverage.tiles(source, start=start), PAGE_TILES)
        end = start + PAGE_TILES
        return ListingPage(
            tiles=tuple(map(self._summary, tiles)), next=str(end) if end < count else None
        )

    def _summary(self, tile: TileId) -> TileSummary:
        return TileSummary(
            tile_id=tile,
            produced_at=datetime.combine(self.imagery_date, time(), UTC),
            resolution_m_per_px=ground_resolution(tile),
            estimated_bytes=self.estimated_tile_bytes,
        )


def _start_of(cursor: str | None, count: int) -> int:
    """Read a cursor, which is the number of the next tile."""
    if cursor is None:
        return 0
    plain = cursor.isascii() and cursor.isdigit() and len(cursor) <= _CURSOR_DIGITS_MAX
    if not plain or int(cursor) >= count:
        raise InvalidValueError(
            field="cursor", value=cursor, problem=f"must be a whole number below {count}"
        )
    return int(cursor)
