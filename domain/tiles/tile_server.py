"""Public tile servers (XYZ): whether bulk downloads are permitted, and how an area is listed."""

from datetime import UTC, date, datetime, time
from hashlib import sha256
from itertools import islice

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.domain.tiles.bbox import LON_MAX, WORLD, BBox
from tileferry.domain.tiles.capture import compute_ground_resolution
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.download import TileSummary
from tileferry.domain.tiles.limits import (
    AREA_TILES_MAX,
    ESTIMATED_TILE_BYTES,
    REQUESTS_PER_S,
    TILE_BYTES_MAX,
    TILE_PX,
    TILES_PER_DOWNLOAD,
)
from tileferry.domain.tiles.listing import ListingPage
from tileferry.domain.tiles.mercator import tile_at
from tileferry.domain.tiles.request_limits import RequestSpacing
from tileferry.domain.tiles.tile_id import ZOOM_MAX, TileId
from tileferry.domain.tiles.tile_template import TileTemplate
from tileferry.domain.validation import instance, integer, text


@frozen(kw_only=True)
class BulkDownloadBan:
    """Hosts whose terms forbid bulk downloads. An acknowledgement does not lift the ban."""

    hosts: tuple[str, ...]
    """Host names, including their subdomains. ``name.*`` matches the name under any top-level
    domain.
    """
    why: str
    read: str

    def covers(self, host: str) -> bool:
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
        why="the terms of Wikimedia Maps forbid downloading areas for offline use, and third-party "
        "services",
        read="https://foundation.wikimedia.org/wiki/Policy:Maps_Terms_of_Use",
    ),
    BulkDownloadBan(
        hosts=("google.*", "googleapis.com"),
        why="the terms of Google Maps forbid prefetching and storing tiles",
        read="https://cloud.google.com/maps-platform/terms",
    ),
)


def check_bulk_policy(
    host: str, *, host_and_port: str, acknowledged_for: str | None, section: str = "xyz"
) -> None:
    """Raise if the host forbids bulk downloads, or if its policy was not acknowledged."""
    what = f"downloading in bulk from {host_and_port}"
    for known in BULK_DOWNLOAD_BANS:
        if known.covers(host):
            raise NotPermittedError(
                what=what,
                problem=f"{known.why}, see {known.read}",
                remedy="use your own server, or one whose terms allow it",
            )
    if acknowledged_for is None or acknowledged_for.strip().lower() != host_and_port:
        said = (
            "its policy on bulk downloads is not acknowledged"
            if acknowledged_for is None
            else f"{section}.bulk_download_acknowledged_for is set for another host, "
            f"{acknowledged_for!r}"
        )
        raise NotPermittedError(
            what=what,
            problem=said,
            remedy="read the server's terms of use and bulk download policy; if they "
            f'allow you to, set {section}.bulk_download_acknowledged_for = "{host_and_port}"',
        )


def compute_identity(text: str, imagery_date: date, key: str, *, tile_px: int | None) -> str:
    """Return a hash that differs between servers, keys and imagery dates."""
    said = f"{text}|{imagery_date.isoformat()}|{key}"
    if tile_px is not None:
        said += f"|{tile_px}"
    return sha256(said.encode()).hexdigest()


PAGE_TILES = 1_000
_CURSOR_DIGITS_MAX = len(str(AREA_TILES_MAX))


@frozen(kw_only=True)
class TileServer:
    """A server that delivers images without a listing, dates or other metadata."""

    template: TileTemplate = field(validator=instance(TileTemplate))
    attribution: str = field(validator=text)
    """The credit to show with the images."""
    licence: str = field(validator=text)
    imagery_date: date = field(validator=instance(date))
    """When the images were taken. ``Last-Modified`` is not used: it is the date of the file."""
    acknowledged_for: str | None = None
    """The host whose bulk download policy the operator has read and found to permit this use."""
    estimated_tile_bytes: int = field(
        default=ESTIMATED_TILE_BYTES, validator=integer(1, TILE_BYTES_MAX)
    )
    max_tiles_per_download: int = field(
        default=TILES_PER_DOWNLOAD, validator=integer(1, AREA_TILES_MAX)
    )
    spacing: RequestSpacing = field(factory=lambda: RequestSpacing(max_per_s=REQUESTS_PER_S))
    zooms: range = range(ZOOM_MAX + 1)
    """The zoom levels that the server has."""
    bounds: BBox | None = None
    """Where it claims to have tiles, which may be wrong; ``None`` if it does not say."""
    section: str = "xyz"
    """The section of the settings; errors name it."""
    sample: TileId | None = None
    """A tile that the server has, if the operator named one."""

    def check_permitted(self) -> None:
        """Raise if bulk downloads from this server are not permitted."""
        for host in self.template.hosts:
            check_bulk_policy(
                host,
                host_and_port=self.template.host_and_port,
                acknowledged_for=self.acknowledged_for,
                section=self.section,
            )

    def compute_identity(self, key: str) -> str:
        """Return a hash that differs between servers, keys and imagery dates."""
        side_px = self.template.tile_px
        return compute_identity(
            self.template.text,
            self.imagery_date,
            key,
            tile_px=None if side_px == TILE_PX else side_px,
        )

    def find_absence(self, tile: TileId) -> str | None:
        """Return why the server cannot have a tile, or ``None`` if it may have it."""
        if tile.zoom not in self.zooms:
            return f"the server has zoom levels {self.zooms[0]} to {self.zooms[-1]} only"
        return None

    def list_samples(self, source: str) -> list[TileId]:
        """Return tiles that the server should have, to find out whether it serves any.

        The named one; else the tile of the whole world, and those in the middle of its bounds.
        """
        if self.sample is not None:
            return [evolve(self.sample, source=source)]
        box = self.bounds or WORLD
        longitude = (box.west + box.width / 2 + LON_MAX) % (2 * LON_MAX) - LON_MAX
        latitude = (box.south + box.north) / 2
        first, last = self.zooms[0], self.zooms[-1]
        levels = {first, (first + last) // 2, last} if self.bounds else {first}
        samples = []
        for zoom in sorted(levels):
            x, y = tile_at(longitude, latitude, zoom)
            samples.append(TileId(source=source, zoom=zoom, x=x, y=y))
        return samples

    def compute_resolution(self, tile: TileId, width_px: int) -> float | None:
        """Return the resolution of an image, unless it is what the listing says.

        A smaller image than usual is a placeholder, and says nothing about the imagery.
        """
        if width_px == self.template.tile_px or width_px < TILE_PX:
            return None
        return compute_ground_resolution(tile, width_px)

    def list_page(self, coverage: TileCoverage, cursor: str | None, *, source: str) -> ListingPage:
        """Return one page of all tiles of the area. The server may not have every one of them."""
        count = coverage.count
        if count > self.max_tiles_per_download:
            raise NotPermittedError(
                what=f"downloading {count:,} tiles from {self.template.host_and_port}",
                problem=f"{self.section}.max_tiles_per_download is {self.max_tiles_per_download:,}",
                remedy="request a smaller area or fewer zoom levels, or raise it if the server's "
                "policy allows it",
            )
        start = _parse_cursor(cursor, count)
        tiles = islice(coverage.tiles(source, start=start), PAGE_TILES)
        end = start + PAGE_TILES
        return ListingPage(
            tiles=tuple(map(self.summarize, tiles)), next=str(end) if end < count else None
        )

    def summarize(self, tile: TileId) -> TileSummary:
        """Return what is known of a tile without a request."""
        return TileSummary(
            tile_id=tile,
            produced_at=datetime.combine(self.imagery_date, time(), UTC),
            resolution_m_per_px=compute_ground_resolution(tile, self.template.tile_px),
            estimated_bytes=self.estimated_tile_bytes,
        )


def _parse_cursor(cursor: str | None, count: int) -> int:
    """Parse a cursor: the index of the next tile."""
    if cursor is None:
        return 0
    plain = cursor.isascii() and cursor.isdigit() and len(cursor) <= _CURSOR_DIGITS_MAX
    if not plain or int(cursor) >= count:
        raise InvalidValueError(
            field="cursor", value=cursor, problem=f"must be a whole number below {count}"
        )
    return int(cursor)
