"""Archive formats, the description of an archive, and the digest of its content."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256

from attrs import define, field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.picture import detect_image_kind
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.tile_range import TileRange


class ArchiveFormat(StrEnum):
    """The supported archive formats."""

    TREE = "tree"
    MBTILES = "mbtiles"
    PMTILES = "pmtiles"
    GEOPACKAGE = "gpkg"
    QGROUNDCONTROL = "qgctiledb"


_SUFFIXES = [form.value for form in ArchiveFormat if form is not ArchiveFormat.TREE]


class TileOrder(StrEnum):
    """The order in which a format stores its tiles."""

    COLUMNS = "columns"
    """By zoom level, then by column, as the cache lists them."""
    CURVE = "curve"
    """By zoom level, then along the Hilbert curve."""


def detect_format(name: str) -> ArchiveFormat:
    """Return the format for a file name's suffix; a name without a suffix is a folder.

    A number at the end, as in ``area-1.2``, is not a suffix.
    """
    suffix = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    if suffix in _SUFFIXES:
        return ArchiveFormat(suffix)
    if suffix and not suffix.isdigit():
        raise InvalidValueError(
            field="archive",
            value=name,
            problem=f"has the unknown suffix .{suffix}",
            remedy=f"use {', '.join(f'.{one}' for one in _SUFFIXES)}, or a name without a suffix"
            " for a folder of images",
        )
    return ArchiveFormat.TREE


def flip_row(zoom: int, row: int) -> int:
    """Return a row counted from the other edge. MBTiles counts rows from the south, tile ids from
    the north.
    """
    return (1 << zoom) - 1 - row


UNKNOWN_KIND = "bin"
DESCRIPTION_BYTES_MAX = 1024 * 1024
_TYPE = "baselayer"
_DESCRIPTION_FIELDS = {"name", "format", "bounds", "center", "minzoom", "maxzoom", "tiles"}


def detect_tile_kind(content: bytes) -> str:
    """Return ``png``, ``jpg``, ``webp`` or ``avif``, or ``bin`` for any other content."""
    try:
        return detect_image_kind(content)
    except InvalidValueError:
        return UNKNOWN_KIND


@frozen(kw_only=True)
class ArchiveDescription:
    """The description of an archive with at least one tile."""

    name: str
    attribution: str | None
    licence: str | None = None
    kinds: Mapping[str, int]
    """The number of tiles by image kind."""
    bounds: BBox
    zoom_min: int
    zoom_max: int

    @property
    def credit(self) -> str | None:
        """Attribution and licence as one text, for formats that have one place for both."""
        return ", ".join(filter(None, (self.attribution, self.licence))) or None

    @property
    def only_kind(self) -> str | None:
        """The kind of all tiles; ``None`` if they differ."""
        return next(iter(self.kinds)) if len(self.kinds) == 1 else None

    @property
    def main_kind(self) -> str:
        """The most frequent kind, for formats that must name one; the first by name in a tie."""
        return min(self.kinds, key=lambda kind: (-self.kinds[kind], kind))

    @property
    def center(self) -> tuple[float, float, int]:
        """The initial view of a map: longitude and latitude of the centre, and the lowest zoom
        level.
        """
        box = self.bounds
        return (box.west + box.east) / 2, (box.south + box.north) / 2, self.zoom_min

    def to_texts(self) -> dict[str, str]:
        """Return the rows of the MBTiles 1.3 ``metadata`` table."""
        lon, lat, zoom = self.center
        box = self.bounds
        told = {
            "name": self.name,
            "format": self.main_kind,
            "bounds": ",".join(
                f"{edge:.7f}" for edge in (box.west, box.south, box.east, box.north)
            ),
            "center": f"{lon:.7f},{lat:.7f},{zoom}",
            "minzoom": str(self.zoom_min),
            "maxzoom": str(self.zoom_max),
            "type": _TYPE,
        }
        credit = {"attribution": self.attribution, "license": self.licence}
        return told | {name: text for name, text in credit.items() if text is not None}

    def to_json(self) -> dict[str, JsonValue]:
        """Return the description as JSON, with the counts by kind."""
        return {**self.to_texts(), "tiles": dict(sorted(self.kinds.items()))}


def is_archive_description(content: bytes) -> bool:
    """Return whether the content is an ``archive.json`` written by an export."""
    try:
        told = parse_json(content, field="archive.json", bytes_max=DESCRIPTION_BYTES_MAX)
    except InvalidValueError:
        return False
    return (
        isinstance(told, dict) and told.keys() >= _DESCRIPTION_FIELDS and told.get("type") == _TYPE
    )


@define
class ArchiveDescriptionBuilder:
    """Collects the description of an archive tile by tile."""

    kinds: Counter[str] = field(factory=Counter)
    _extents: dict[int, tuple[int, int, int, int]] = field(factory=dict)

    def add(self, tile: TileId, kind: str) -> None:
        self.kinds[kind] += 1
        x, y = tile.x, tile.y
        x_min, x_max, y_min, y_max = self._extents.get(tile.zoom, (x, x, y, y))
        self._extents[tile.zoom] = min(x, x_min), max(x, x_max), min(y, y_min), max(y, y_max)

    def build(
        self, *, name: str, attribution: str | None, licence: str | None = None
    ) -> ArchiveDescription:
        """Return the description. Its bounds are those of the highest zoom level.

        Tiles of lower levels extend beyond the area, where there is nothing to zoom into.
        """
        zoom = max(self._extents)
        x_min, x_max, y_min, y_max = self._extents[zoom]
        return ArchiveDescription(
            name=name,
            attribution=attribution,
            licence=licence,
            kinds=dict(self.kinds),
            bounds=TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max).bounds,
            zoom_min=min(self._extents),
            zoom_max=zoom,
        )


_MODULUS = 1 << 256


@define
class ContentDigest:
    """An order-independent digest of tiles. Equal digests mean equal tiles."""

    tiles: int = 0
    total: int = 0

    def add(self, tile: TileId, digest: bytes) -> None:
        """Add a tile with the sha256 of its bytes."""
        one = sha256(b"%d/%d/%d " % (tile.zoom, tile.x, tile.y) + digest).digest()
        self.tiles += 1
        self.total = (self.total + int.from_bytes(one, "big")) % _MODULUS
