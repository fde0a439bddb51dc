"""The lines of a pack."""

from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve

from tileferry.domain.archives import TileFacts
from tileferry.domain.canonical import canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.packs import (
    PackEntry,
    PackHeader,
    PackSeal,
    build_signed_message,
    check_trusted,
    parse_pack_line,
)
from tileferry.domain.tiles import Area, BBox, Flight, FlightArea, SectorClass, TileId

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
KEY, DIGEST, SIGNATURE = "ab" * 32, "cd" * 32, "ef" * 64
AREA = Area(
    bbox=BBox(west=36.1, south=49.9, east=36.2, north=50.0),
    zoom_levels=[14, 15],
    sector_class=SectorClass.STABLE_REAR,
)
FLIGHT = Flight(
    flight_id="F7", areas=[FlightArea(source="sat", area=AREA, added_at=AT)], pinned_at=AT
)
HEADER = PackHeader(flight=FLIGHT, is_go=True, created_at=AT, public_key=KEY)
ENTRY = PackEntry(
    tile_id=TileId.parse("sat/14/9500/5500"),
    length=7,
    facts=TileFacts(produced_at=AT, resolution_m_per_px=0.6, sha256=DIGEST),
)


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        evolve(HEADER, has_content=False, is_go=False),
        evolve(HEADER, flight=evolve(FLIGHT, pinned_at=None, expires_at=AT)),
    ],
)
def test_header_round_trips(header: PackHeader) -> None:
    assert PackHeader.parse_line(header.to_line()) == header


@pytest.mark.parametrize("entry", [ENTRY, PackEntry(tile_id=ENTRY.tile_id, absent_at=AT)])
def test_entry_round_trips(entry: PackEntry) -> None:
    assert parse_pack_line(entry.to_line()) == entry


def test_seal_round_trips() -> None:
    seal = PackSeal(sha256=DIGEST, signature=SIGNATURE)
    assert parse_pack_line(seal.to_line()) == seal


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 2}, "is not known"),
        ({"kind": "parcel"}, "must be pack or inventory"),
        ({"public_key": "AB" * 32}, "must be 32 bytes"),
        ({"areas": 7}, "must be a list"),
        ({"areas": [7]}, "must be an object"),
        ({"flight": ""}, "header"),
        ({"is_go": 1}, "must be true or false"),
    ],
)
def test_invalid_header_is_rejected(changes: dict[str, Any], problem: str) -> None:
    fields = parse_json(HEADER.to_line(), field="header", bytes_max=9_999)
    assert isinstance(fields, dict)
    with pytest.raises(InvalidValueError, match=problem):
        PackHeader.parse_line(canonical_json({**fields, **changes}))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tile": "sat/99/0/0"}, "tile"),
        ({"length": -1}, "must be from 0"),
        ({"length": 10**9}, "must be from 0"),
        ({"sha256": "x"}, "64 lower-case hex digits"),
        ({"seal": "x"}, "must be 32 bytes"),
        ({"seal": DIGEST, "signature": KEY}, "must be 64 bytes"),
    ],
)
def test_invalid_line_is_rejected(changes: dict[str, Any], problem: str) -> None:
    fields = parse_json(ENTRY.to_line(), field="entry", bytes_max=9_999)
    assert isinstance(fields, dict)
    with pytest.raises(InvalidValueError, match=problem):
        parse_pack_line(canonical_json({**fields, **changes}))


def test_only_trusted_keys_are_accepted() -> None:
    check_trusted(KEY, frozenset({KEY}))
    with pytest.raises(InvalidValueError, match="is not a key that this machine trusts"):
        check_trusted(KEY, frozenset())


def test_signed_message_names_its_purpose() -> None:
    assert build_signed_message(DIGEST) == b"tileferry pack\0" + bytes.fromhex(DIGEST)
