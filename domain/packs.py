"""Packs: the tiles of a flight in one signed file, to carry to a machine without a link.

A pack is a line with its header, a line with its content for each tile, and a line with its seal.
An inventory is a pack without contents: it lists what a machine already has.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime

from attrs import field, frozen

from tileferry.domain.archives.facts import TileFacts
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles.area import area_to_json, parse_area
from tileferry.domain.tiles.flight import Flight, FlightArea
from tileferry.domain.tiles.limits import TILE_BYTES_MAX
from tileferry.domain.tiles.tile_id import TileId

VERSION = 1
HEADER_BYTES_MAX = 4 * 1024 * 1024
LINE_BYTES_MAX = 1_024
_KEY_BYTES, _SIGNATURE_BYTES, _DIGEST_BYTES = 32, 64, 32
SEAL_BYTES = 256
"""More than the last line has."""
_CONTEXT = b"tileferry pack\0"
"""Signed with the digest, so that no other signature of the key is valid for a pack."""


def _format_line(fields: Mapping[str, JsonValue]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _format_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _parse_time(data: JsonObject, name: str) -> datetime | None:
    return None if data.fields.get(name) is None else data.get_datetime(name)


def _parse_hex(data: JsonObject, name: str, size: int) -> str:
    found = data.get(name, str)
    if not re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", found):
        raise data.build_error(name, f"must be {size} bytes in hexadecimal digits")
    return found


@frozen(kw_only=True)
class PackHeader:
    """What a pack is for, and who signs it."""

    flight: Flight
    is_go: bool
    """The verdict where the pack was created."""
    created_at: datetime
    public_key: str
    has_content: bool = True

    def to_line(self) -> bytes:
        flight = self.flight
        areas = [
            {
                "source": item.source,
                "added_at": item.added_at.isoformat(),
                **area_to_json(item.area),
            }
            for item in flight.areas
        ]
        return _format_line(
            {
                "version": VERSION,
                "kind": "pack" if self.has_content else "inventory",
                "flight": flight.flight_id,
                "areas": areas,
                "pinned_at": _format_time(flight.pinned_at),
                "expires_at": _format_time(flight.expires_at),
                "is_go": self.is_go,
                "created_at": self.created_at.isoformat(),
                "public_key": self.public_key,
            }
        )

    @classmethod
    def parse_line(cls, line: bytes) -> "PackHeader":
        data = JsonObject.from_value(
            parse_json(line, field="header", bytes_max=HEADER_BYTES_MAX), "header"
        )
        data.check_version(VERSION, remedy="use the release that created the pack, or a later one")
        kind = data.get("kind", str)
        if kind not in {"pack", "inventory"}:
            raise data.build_error("kind", "must be pack or inventory")
        with data.locate_errors():
            flight = Flight(
                flight_id=data.get("flight", str),
                areas=[_parse_area(item) for item in data.get_list("areas")],
                pinned_at=_parse_time(data, "pinned_at"),
                expires_at=_parse_time(data, "expires_at"),
            )
        return cls(
            flight=flight,
            is_go=data.get("is_go", bool),
            created_at=data.get_datetime("created_at"),
            public_key=_parse_hex(data, "public_key", _KEY_BYTES),
            has_content=kind == "pack",
        )


def _parse_area(value: JsonValue) -> FlightArea:
    data = JsonObject.from_value(value, "header.areas")
    with data.locate_errors():
        return FlightArea(
            source=data.get("source", str),
            area=parse_area(data),
            added_at=data.get_datetime("added_at"),
        )


@frozen(kw_only=True)
class PackEntry:
    """A tile in a pack: its facts, or since when the provider does not have it."""

    tile_id: TileId
    length: int = 0
    """The number of bytes that follow the line; 0 in an inventory."""
    facts: TileFacts = field(factory=TileFacts)
    absent_at: datetime | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, int]:
        """The order of the entries of a pack."""
        tile = self.tile_id
        return tile.source, tile.zoom, tile.x, tile.y

    def to_line(self) -> bytes:
        produced_at, resolution, digest = self.facts.to_texts()
        return _format_line(
            {
                "tile": str(self.tile_id),
                "length": self.length,
                "produced_at": produced_at,
                "resolution_m_per_px": resolution,
                "sha256": digest,
                "absent_at": _format_time(self.absent_at),
            }
        )

    @classmethod
    def parse(cls, data: JsonObject) -> "PackEntry":
        with data.locate_errors("tile"):
            tile = TileId.parse(data.get("tile", str))
        length = data.get("length", int)
        if not 0 <= length <= TILE_BYTES_MAX:
            raise data.build_error("length", f"must be from 0 to {TILE_BYTES_MAX}")
        fields = data.fields
        with data.locate_errors():
            facts = TileFacts.parse(
                fields.get("produced_at"), fields.get("resolution_m_per_px"), fields.get("sha256")
            )
        return cls(
            tile_id=tile, length=length, facts=facts, absent_at=_parse_time(data, "absent_at")
        )


@frozen(kw_only=True)
class PackSeal:
    """The last line: the digest of everything before it, and its signature."""

    sha256: str
    signature: str

    def to_line(self) -> bytes:
        return _format_line({"seal": self.sha256, "signature": self.signature})

    @classmethod
    def parse(cls, data: JsonObject) -> "PackSeal":
        return cls(
            sha256=_parse_hex(data, "seal", _DIGEST_BYTES),
            signature=_parse_hex(data, "signature", _SIGNATURE_BYTES),
        )


def parse_pack_line(line: bytes) -> PackEntry | PackSeal:
    """Parse any line but the first."""
    data = JsonObject.from_value(parse_json(line, field="entry", bytes_max=LINE_BYTES_MAX), "entry")
    return PackSeal.parse(data) if "seal" in data.fields else PackEntry.parse(data)


def build_signed_message(digest: str) -> bytes:
    """Return what is signed: the digest of a pack, and what it is for."""
    return _CONTEXT + bytes.fromhex(digest)


def check_trusted(key: str, trusted: frozenset[str]) -> None:
    """Raise unless the key of a pack is trusted here."""
    if key not in trusted:
        raise InvalidValueError(
            field="public_key",
            value=key,
            problem="is not a key that this machine trusts",
            remedy=Remedy.TRUST_PACK_KEY,
        )
