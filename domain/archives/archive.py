"""The kinds of archives, and how they differ in where they put a tile."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256

from attrs import define, field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.capture import detect_image_kind
from tileferry.domain.tiles.coverage import TileRange
from tileferry.domain.tiles.tile_id import TileId


class ArchiveFormat(StrEnum):
    """What other tools read."""

    TREE = "tree"
    MBTILES = "mbtiles"
    PMTILES = "pmtiles"


class TileOrder(StrEnum):
    """In which order a format takes its tiles."""

    COLUMNS = "columns"
    """Level by level, column by column, as the cache lists them."""
    CURVE = "curve"
    """Level by level, along the Hilbert curve."""


def detect_format(name: str) -> ArchiveFormat:
    """Return the format that a file's name tells by its suffix; without one it is a folder."""
    suffix = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    return ArchiveFormat(suffix) if suffix in {"mbtiles", "pmtiles"} else ArchiveFormat.TREE


def flip_row(zoom: int, row: int) -> int:
    """Return a row counted from the other edge: MBTiles counts from the south, and we do not."""
    return (1 << zoom) - 1 - row


UNKNOWN_KIND = "bin"
DESCRIPTION_BYTES_MAX = 1024 * 1024
_TYPE = "baselayer"
_DESCRIPTION_FIELDS = {"name", "format", "bounds", "center", "minzoom", "maxzoom", "tiles"}


def detect_tile_kind(content: bytes) -> str:
    """Return ``png``, ``jpg`` or ``webp``, or ``bin`` for what is no picture that we know."""
    try:
        return detect_image_kind(content)
    except InvalidValueError:
        return UNKNOWN_KIND


@frozen(kw_only=True)
class ArchiveDescription:
    """The description of an archive that has one tile at least."""

    name: str
    attribution: str | None
    kinds: Mapping[str, int]
    """How many tiles there are of each kind of picture."""
    bounds: BBox
    zoom_min: int
    zoom_max: int

    @property
    def only_kind(self) -> str | None:
        """The kind of all tiles, if it is one."""
        return next(iter(self.kinds)) if len(self.kinds) == 1 else None

    @property
    def main_kind(self) -> str:
        """The kind of most tiles, for formats that must name one; of equals, the first by name."""
        return min(self.kinds, key=lambda kind: (-self.kinds[kind], kind))

    @property
    def center(self) -> tuple[float, float, int]:
        """Where a map opens: longitude and latitude of the middle, and the level that shows all."""
        box = self.bounds
        return (box.west + box.east) / 2, (box.south + box.north) / 2, self.zoom_min

    def to_texts(self) -> dict[str, str]:
        """Return it as MBTiles 1.3 has it in its table ``metadata``."""
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
        return told if self.attribution is None else {**told, "attribution": self.attribution}

    def to_json(self) -> dict[str, JsonValue]:
        """Return it in JSON's terms, with the kinds counted."""
        return {**self.to_texts(), "tiles": dict(sorted(self.kinds.items()))}


def is_archive_description(content: bytes) -> bool:
    """Tell whether ``archive.json`` is one that an export wrote, and not some other file."""
    try:
        told = parse_json(content, field="archive.json", bytes_max=DESCRIPTION_BYTES_MAX)
    except InvalidValueError:
        return False
    return (
        isinstance(told, dict) and told.keys() >= _DESCRIPTION_FIELDS and told.get("type") == _TYPE
    )


@define
class ArchiveDescriptionBuilder:
    """Adds up what is said of an archive."""

    kinds: Counter[str] = field(factory=Counter)
    _extents: dict[int, tuple[int, int, int, int]] = field(factory=dict)

    def add(self, tile: TileId, kind: str) -> None:
        """Count a tile."""
        self.kinds[kind] += 1
        x, y = tile.x, tile.y
        x_min, x_max, y_min, y_max = self._extents.get(tile.zoom, (x, x, y, y))
        self._extents[tile.zoom] = min(x, x_min), max(x, x_max), min(y, y_min), max(y, y_max)

    def build(self, *, name: str, attribution: str | None) -> ArchiveDescription:
        """Return the description; the bounds are those of all levels together."""
        boxes = [
            TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max).bounds
            for zoom, (x_min, x_max, y_min, y_max) in self._extents.items()
        ]
        return ArchiveDescription(
            name=name,
            attribution=attribution,
            kinds=dict(self.kinds),
            bounds=BBox(
                west=min(box.west for box in boxes),
                south=min(box.south for box in boxes),
                east=max(box.east for box in boxes),
                north=max(box.north for box in boxes),
            ),
            zoom_min=min(self._extents),
            zoom_max=max(self._extents),
        )


_MODULUS = 1 << 256


@define
class ContentDigest:
    """Counts tiles and adds up a digest of each: equal tallies have equal tiles, in any order."""

    tiles: int = 0
    total: int = 0

    def add(self, tile: TileId, digest: bytes) -> None:
        """Count a tile by its place and the sha256 of its bytes."""
        one = sha256(b"%d/%d/%d " % (tile.zoom, tile.x, tile.y) + digest).digest()
        self.tiles += 1
        self.total = (self.total + int.from_bytes(one, "big")) % _MODULUS
