"""What an archive says of itself, added up while it is written."""

from collections import Counter
from collections.abc import Mapping

from attrs import define, field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json_input import parse_json
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.capture import image_kind
from tileferry.domain.tiles.coverage import TileRange
from tileferry.domain.tiles.tile_id import TileId

UNKNOWN_KIND = "bin"
ABOUT_BYTES_MAX = 1024 * 1024
_TYPE = "baselayer"
_TOLD = {"name", "format", "bounds", "center", "minzoom", "maxzoom", "tiles"}


def kind_of(content: bytes) -> str:
    """Return ``png``, ``jpg`` or ``webp``, or ``bin`` for what is no picture that we know."""
    try:
        return image_kind(content)
    except InvalidValueError:
        return UNKNOWN_KIND


@frozen(kw_only=True)
class ArchiveAbout:
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

    def texts(self) -> dict[str, str]:
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

    def json(self) -> dict[str, JsonValue]:
        """Return it in JSON's terms, with the kinds counted."""
        return {**self.texts(), "tiles": dict(sorted(self.kinds.items()))}


def describes_archive(content: bytes) -> bool:
    """Tell whether ``archive.json`` is one that an export wrote, and not some other file."""
    try:
        told = parse_json(content, field="archive.json", bytes_max=ABOUT_BYTES_MAX)
    except InvalidValueError:
        return False
    return isinstance(told, dict) and told.keys() >= _TOLD and told.get("type") == _TYPE


@define
class AboutTally:
    """Adds up what is said of an archive."""

    kinds: Counter[str] = field(factory=Counter)
    _extents: dict[int, tuple[int, int, int, int]] = field(factory=dict)

    def add(self, tile: TileId, kind: str) -> None:
        """Count a tile."""
        self.kinds[kind] += 1
        x, y = tile.x, tile.y
        x_min, x_max, y_min, y_max = self._extents.get(tile.zoom, (x, x, y, y))
        self._extents[tile.zoom] = min(x, x_min), max(x, x_max), min(y, y_min), max(y, y_max)

    def about(self, *, name: str, attribution: str | None) -> ArchiveAbout:
        """Return the description; the bounds are those of all levels together."""
        boxes = [
            TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max).bounds
            for zoom, (x_min, x_max, y_min, y_max) in self._extents.items()
        ]
        return ArchiveAbout(
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
