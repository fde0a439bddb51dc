"""Downloading many tiles from a server that serves everybody: who forbids it, who must be asked."""

from datetime import UTC, date, datetime, time
from hashlib import sha256
from itertools import islice

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.domain.tiles.capture import compute_ground_resolution
from tileferry.domain.tiles.coverage import AREA_TILES_MAX, TileCoverage
from tileferry.domain.tiles.download import TileSummary
from tileferry.domain.tiles.listing import ListingPage
from tileferry.domain.tiles.metadata import TILE_BYTES_MAX
from tileferry.domain.tiles.request_limits import RequestSpacing
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.tile_template import TileTemplate
from tileferry.domain.validation import instance, integer, text


@frozen(kw_only=True)
class BulkDownloadBan:
    """Hosts whose terms forbid it, whatever anybody acknowledges."""

    hosts: tuple[str, ...]
    """Each with all hosts below it; ``name.*`` is a name in every country."""
    why: str
    read: str

    def covers(self, host: str) -> bool:
        """Tell whether a host is one of these."""
        labels = host.split(".")
        owner = labels[-3:-2] if labels[-2:-1] in (["co"], ["com"]) else labels[-2:-1]
        return any(
            known[:-2] in owner
            if known.endswith(".*")
            else host == known or host.endswith(f".{known}")
            for known in self.hosts
        )


BULK_DOWNLOAD_BANS = (
    BulkDownloadBan(
        hosts=("tile.openstreetmap.org", "tile.osm.org"),
        why="OpenStreetMap's tile usage policy forbids bulk downloading and offline use",
        read="https://operations.osmfoundation.org/policies/tiles/",
    ),
    BulkDownloadBan(
        hosts=("maps.wikimedia.org",),
        why="the terms of Wikimedia Maps forbid downloading areas for offline use, and services of "
        "others",
        read="https://foundation.wikimedia.org/wiki/Policy:Maps_Terms_of_Use",
    ),
    BulkDownloadBan(
        hosts=("google.*", "googleapis.com"),
        why="the terms of Google Maps forbid to fetch tiles in advance and to store them",
        read="https://cloud.google.com/maps-platform/terms",
    ),
)


def check_bulk_policy(host: str, *, host_and_port: str, acknowledged_for: str | None) -> None:
    """Refuse a host that forbids bulk downloads, or that nobody has said they may ask for many."""
    what = f"downloading in bulk from {host_and_port}"
    for known in BULK_DOWNLOAD_BANS:
        if known.covers(host):
            raise NotPermittedError(
                what=what,
                problem=f"{known.why}, see {known.read}",
                remedy="use a server of your own, or one whose terms allow it",
            )
    if acknowledged_for is None or acknowledged_for.strip().lower() != host_and_port:
        said = (
            "its policy on bulk downloads is not acknowledged"
            if acknowledged_for is None
            else f"xyz.bulk_download_acknowledged_for is {acknowledged_for!r}, another host"
        )
        raise NotPermittedError(
            what=what,
            problem=said,
            remedy="read that server's terms of use and its policy on bulk downloads; if they "
            f'allow you to, set xyz.bulk_download_acknowledged_for = "{host_and_port}"',
        )


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

    def compute_identity(self, key: str) -> str:
        """Return what tells downloads from two servers, or with two keys, or of two dates apart."""
        said = f"{self.template.text}|{self.imagery_date.isoformat()}|{key}"
        return sha256(said.encode()).hexdigest()

    def list_page(self, coverage: TileCoverage, cursor: str | None, *, source: str) -> ListingPage:
        """Return a page of what an area consists of; whether it is all there, fetching shows."""
        count = coverage.count
        if count > self.max_tiles_per_download:
            raise NotPermittedError(
                what=f"downloading {count:,} tiles from {self.template.host_and_port}",
                problem=f"xyz.max_tiles_per_download is {self.max_tiles_per_download:,}",
                remedy="ask for a smaller area or fewer zoom levels; or raise it, if that server's "
                "policy allows so many",
            )
        start = _parse_cursor(cursor, count)
        tiles = islice(coverage.tiles(source, start=start), PAGE_TILES)
        end = start + PAGE_TILES
        return ListingPage(
            tiles=tuple(map(self._summarize, tiles)), next=str(end) if end < count else None
        )

    def _summarize(self, tile: TileId) -> TileSummary:
        return TileSummary(
            tile_id=tile,
            produced_at=datetime.combine(self.imagery_date, time(), UTC),
            resolution_m_per_px=compute_ground_resolution(tile),
            estimated_bytes=self.estimated_tile_bytes,
        )


def _parse_cursor(cursor: str | None, count: int) -> int:
    """Read a cursor, which is the number of the next tile."""
    if cursor is None:
        return 0
    plain = cursor.isascii() and cursor.isdigit() and len(cursor) <= _CURSOR_DIGITS_MAX
    if not plain or int(cursor) >= count:
        raise InvalidValueError(
            field="cursor", value=cursor, problem=f"must be a whole number below {count}"
        )
    return int(cursor)
