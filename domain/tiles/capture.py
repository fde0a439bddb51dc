"""Captured imagery in a folder: tile files ``z/x/y.<ext>`` and an optional ``metadata.json``."""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles.gates import FUTURE_TOLERANCE
from tileferry.domain.tiles.limits import TILE_PX
from tileferry.domain.tiles.mercator import tile_bounds
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import NAME_CHARS_MAX, aware, is_name, positive

FACTS_FILE = "metadata.json"
FACTS_BYTES_MAX = 65_536
_EARTH_M = 40_075_016.686
"""The length of the equator in Web Mercator."""
_HASH_CHARS = 8
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_FILE = re.compile(r"(0|[1-9][0-9]{0,9})\.[A-Za-z0-9]{1,8}", re.ASCII)
_SYSTEM_FILES = frozenset({"system volume information", "thumbs.db", "desktop.ini"})
TMS_FILE = "tilemapresource.xml"
"""Written by gdal2tiles into the root of a tree whose rows are counted from the south."""
_COMPANIONS = (".aux.xml", ".html", ".kml", ".mapml", TMS_FILE)
"""Written by gdal2tiles next to tiles."""
_FOREIGN_FIELDS = frozenset({"bounds", "format", "maxzoom", "minzoom", "tilejson"})
"""In a ``metadata.json`` of MBTiles tools such as mb-util."""


class TileScheme(StrEnum):
    """How the rows of a tree are counted."""

    XYZ = "xyz"
    """From the north."""
    TMS = "tms"
    """From the south."""


def build_capture_source(flight_id: str) -> str:
    """Return the source name for a flight's captures.

    Each flight has its own source, so captures of the same place by two flights do not replace each
    other. Source names are lower case; a flight id that is not a valid source name gets a hash
    suffix.
    """
    plain = f"flight-{flight_id}"
    if plain == plain.lower() and is_name(plain):
        return plain
    digest = sha256(flight_id.encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain.lower()[: NAME_CHARS_MAX - _HASH_CHARS - 1]}-{digest}"


def is_system_file(name: str) -> bool:
    """Return whether a system or a tiling program creates this file or folder on its own."""
    lower = name.lower()
    return lower.startswith(".") or lower in _SYSTEM_FILES or lower.endswith(_COMPANIONS)


def parse_captured_tile(
    parts: Sequence[str], flight_id: str, scheme: TileScheme = TileScheme.XYZ
) -> TileId:
    """Parse the path of a captured file within its folder into a tile of the flight."""
    return parse_tile_path(parts, build_capture_source(flight_id), scheme)


def parse_tile_path(
    parts: Sequence[str], source: str, scheme: TileScheme = TileScheme.XYZ
) -> TileId:
    """Parse a path within the folder, ``z``, ``x``, ``y.<ext>``, into a tile of ``source``."""
    name = _FILE.fullmatch(parts[2]) if len(parts) == 3 else None  # noqa: PLR2004  # z, x and y
    if name is None or not all(map(_NUMBER.fullmatch, parts[:2])):
        raise InvalidValueError(
            field="path",
            value="/".join(parts),
            problem="is not z/x/y.<ext>, such as 16/39000/22000.png",
        )
    tile = TileId(source=source, zoom=int(parts[0]), x=int(parts[1]), y=int(name[1]))
    if scheme is TileScheme.XYZ:
        return tile
    return TileId(source=source, zoom=tile.zoom, x=tile.x, y=(1 << tile.zoom) - 1 - tile.y)


def check_captured_at(moment: datetime, *, now: datetime) -> None:
    """Reject a date in the future: it is wrong, and would win over every later capture."""
    if moment > now + FUTURE_TOLERANCE:
        raise InvalidValueError(
            field="captured_at",
            value=moment.isoformat(),
            problem="is in the future",
            remedy=f"correct it in {FACTS_FILE}, or set this machine's clock",
        )


def compute_ground_resolution(tile: TileId, tile_px: int = TILE_PX) -> float:
    """Return metres per pixel at the centre of a tile with sides of ``tile_px`` pixels."""
    box = tile_bounds(tile)
    latitude = math.radians((box.north + box.south) / 2)
    return _EARTH_M * math.cos(latitude) / (tile_px << tile.zoom)


@frozen(kw_only=True)
class CaptureFacts:
    """The contents of ``metadata.json``, which apply to all tiles of a folder. All fields are
    optional.
    """

    captured_at: datetime | None = field(default=None, validator=validators.optional(aware))
    resolution_m_per_px: float | None = field(default=None, validator=validators.optional(positive))

    @classmethod
    def parse(cls, content: bytes) -> "CaptureFacts":
        """Parse the file. Unknown fields are rejected, because they may be typing errors, unless it
        is the file of another program.
        """
        found = parse_json(content, field=FACTS_FILE, bytes_max=FACTS_BYTES_MAX)
        data = JsonObject.from_value(found, FACTS_FILE)
        if _FOREIGN_FIELDS.isdisjoint(data.fields):
            data.check_names((), optional=("captured_at", "resolution_m_per_px"))
        given = {name for name, value in data.fields.items() if value is not None}
        moment = data.get_datetime("captured_at") if "captured_at" in given else None
        resolution = (
            data.get_number("resolution_m_per_px") if "resolution_m_per_px" in given else None
        )
        with data.locate_errors():
            return cls(captured_at=moment, resolution_m_per_px=resolution)
