"""What an aircraft captured, as it lies in a folder: ``z/x/y.<ext>``, and what is said of it."""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles.gates import FUTURE_TOLERANCE
from tileferry.domain.tiles.mercator import tile_bounds
from tileferry.domain.tiles.metadata import TILE_BYTES_MAX
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import NAME_CHARS_MAX, aware, is_name, positive

FACTS_FILE = "metadata.json"
FACTS_BYTES_MAX = 65_536
_EARTH_M = 40_075_016.686
"""The equator's length in Web Mercator."""
_TILE_PX = 256
_HASH_CHARS = 8
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_FILE = re.compile(r"(0|[1-9][0-9]{0,9})\.[A-Za-z0-9]{1,8}", re.ASCII)
_SYSTEM_FILES = frozenset({"system volume information", "thumbs.db", "desktop.ini"})
_KINDS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "png"),
    (re.compile(rb"\xff\xd8\xff"), "jpg"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "webp"),
)


def build_capture_source(flight_id: str) -> str:
    """Return under which source a flight's captures are kept.

    Each flight has its own: two that saw the same place are two witnesses, and neither takes the
    other's place. Sources are in lower case, so what differs by its case alone gets a hash.
    """
    plain = f"flight-{flight_id}"
    if plain == plain.lower() and is_name(plain):
        return plain
    digest = sha256(flight_id.encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain.lower()[: NAME_CHARS_MAX - _HASH_CHARS - 1]}-{digest}"


def is_system_file(name: str) -> bool:
    """Tell whether a file or folder is what systems leave on a card, and nobody put there."""
    return name.startswith(".") or name.lower() in _SYSTEM_FILES


def parse_captured_tile(parts: Sequence[str], flight_id: str) -> TileId:
    """Return the tile of a flight that a file is, by its path in the folder."""
    return parse_tile_path(parts, build_capture_source(flight_id))


def parse_tile_path(parts: Sequence[str], source: str) -> TileId:
    """Return the tile that a file is, by its path in the folder: ``z``, ``x``, ``y.<ext>``."""
    name = _FILE.fullmatch(parts[2]) if len(parts) == 3 else None  # noqa: PLR2004  # z, x and y
    if name is None or not all(map(_NUMBER.fullmatch, parts[:2])):
        raise InvalidValueError(
            field="path",
            value="/".join(parts),
            problem="is not z/x/y.<ext>, such as 16/39000/22000.png",
        )
    return TileId(source=source, zoom=int(parts[0]), x=int(parts[1]), y=int(name[1]))


def check_captured_at(moment: datetime, *, now: datetime) -> None:
    """Refuse a date that lies ahead: it cannot be true, and would win over every later capture."""
    if moment > now + FUTURE_TOLERANCE:
        raise InvalidValueError(
            field="captured_at",
            value=moment.isoformat(),
            problem="is in the future",
            remedy=f"correct it in {FACTS_FILE}, or the clock of this machine",
        )


def detect_image_kind(content: bytes) -> str:
    """Return ``png``, ``jpg`` or ``webp`` by the first bytes; what is none of these is refused."""
    if not content:
        raise InvalidValueError(field="content", value="0 bytes", problem="is empty")
    if len(content) > TILE_BYTES_MAX:
        raise InvalidValueError(
            field="content", value=f"over {TILE_BYTES_MAX} bytes", problem="is too large for a tile"
        )
    for beginning, kind in _KINDS:
        if beginning.match(content):
            return kind
    raise InvalidValueError(
        field="content", value=f"{len(content)} bytes", problem="is no PNG, JPEG or WebP picture"
    )


def compute_ground_resolution(tile: TileId) -> float:
    """Return the metres a pixel of a tile of 256 pixels covers, in the tile's middle."""
    box = tile_bounds(tile)
    latitude = math.radians((box.north + box.south) / 2)
    return _EARTH_M * math.cos(latitude) / (_TILE_PX << tile.zoom)


@frozen(kw_only=True)
class CaptureFacts:
    """What ``metadata.json`` says of all tiles of a folder; each part of it may be missing."""

    captured_at: datetime | None = field(default=None, validator=validators.optional(aware))
    resolution_m_per_px: float | None = field(default=None, validator=validators.optional(positive))

    @classmethod
    def parse(cls, content: bytes) -> "CaptureFacts":
        """Read the file; a name that is not known is refused, for it may be a misspelt one."""
        found = parse_json(content, field=FACTS_FILE, bytes_max=FACTS_BYTES_MAX)
        data = JsonObject.from_value(found, FACTS_FILE)
        data.check_names((), optional=("captured_at", "resolution_m_per_px"))
        given = {name for name, value in data.fields.items() if value is not None}
        moment = data.get_datetime("captured_at") if "captured_at" in given else None
        resolution = (
            data.get_number("resolution_m_per_px") if "resolution_m_per_px" in given else None
        )
        with data.locate_errors():
            return cls(captured_at=moment, resolution_m_per_px=resolution)
