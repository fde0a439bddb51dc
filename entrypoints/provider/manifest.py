"""An upload's manifest: what its tiles are said to be."""

import json
import re
from datetime import datetime
from typing import Any, NoReturn

from attrs import Attribute, field, frozen

from tileferry.domain.checks import as_float, aware, integer, positive
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId
from tileferry.entrypoints.provider.answers import RefusalError
from tileferry.entrypoints.provider.multipart import Part

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TILE_KEYS = ("tile_id", "captured_at", "resolution_m_per_px", "sha256", "size")


def _digest(_instance: object, _attribute: "Attribute[Any]", value: object) -> None:
    if not (isinstance(value, str) and _SHA256.fullmatch(value)):
        raise InvalidValueError(
            field="sha256", value=value, problem="must be 64 lower-case hex digits"
        )


@frozen(kw_only=True)
class ManifestTile:
    """One tile of the batch."""

    tile_id: TileId
    captured_at: datetime = field(validator=aware)
    resolution_m_per_px: float = field(converter=as_float, validator=positive)
    sha256: str = field(validator=_digest)
    size: int = field(validator=integer(0, TILE_BYTES_MAX))


@frozen
class Manifest:
    """The batch: of which flight, and which tiles in which order."""

    flight_id: str
    tiles: list[ManifestTile]

    @classmethod
    def of(cls, parts: list[Part]) -> "Manifest":
        """Read the first part, and see that the others are the tiles that it names."""
        if not parts or parts[0].name != "manifest":
            _refuse("the first part must be called manifest")
        if parts[0].content_type.partition(";")[0].strip() != "application/json":
            _refuse("its Content-Type must be application/json")
        body = _json(parts[0].content)
        if not isinstance(body, dict) or not isinstance(body.get("tiles"), list):
            _refuse("it must be an object with flight_id and tiles")
        tiles = [_tile(entry, f"tiles[{index}]") for index, entry in enumerate(body["tiles"])]
        named = [str(tile.tile_id) for tile in tiles]
        if not tiles or len(set(named)) < len(named):
            _refuse("it must name one tile at least, and each once")
        if named != [part.name for part in parts[1:]]:
            _refuse("after it comes one part for each of its tiles, in its order")
        return cls(str(body.get("flight_id")), tiles)


def _tile(entry: object, at: str) -> ManifestTile:
    if not isinstance(entry, dict) or not set(_TILE_KEYS) <= set(entry):
        _refuse(f"{at} must be an object with {', '.join(_TILE_KEYS)}")
    try:
        return ManifestTile(
            tile_id=TileId.parse(entry["tile_id"]),
            captured_at=datetime.fromisoformat(entry["captured_at"]),
            resolution_m_per_px=entry["resolution_m_per_px"],
            sha256=entry["sha256"],
            size=entry["size"],
        )
    except InvalidValueError as error:
        _refuse(f"{at}: {error}")
    except (TypeError, ValueError):
        _refuse(f"{at}.captured_at must be a time with its zone")


def _json(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=lambda name: _refuse(f"{name} is no number"))
    except (ValueError, RecursionError):
        _refuse("it is no JSON")


def _refuse(problem: str) -> NoReturn:
    raise RefusalError(400, "bad_manifest", f"manifest: {problem}")
