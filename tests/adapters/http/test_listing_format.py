"""The JSON of a provider's listing."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tileferry.adapters.http.listing_format import parse_listing_page
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    ListingPage,
    TileId,
    TileSummary,
)
from tileferry.domain.validation import parse_datetime

LINE = {
    "z": 14,
    "x": 9_830,
    "y": 5_544,
    "produced_at": "2026-10-01T12:00:00Z",
    "resolution_m_per_px": 0.6,
    "estimated_bytes": 20_480,
}
TILE = TileSummary(
    tile_id=TileId(source="sat", zoom=14, x=9_830, y=5_544),
    produced_at=datetime(2026, 10, 1, 12, tzinfo=UTC),
    resolution_m_per_px=0.6,
    estimated_bytes=20_480,
)


def parse(data: Any) -> ListingPage:
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    return parse_listing_page(content, source="sat", bytes_max=100_000)


def make_page(*lines: Any, following: Any = None) -> Any:
    return {"tiles": list(lines), "next": following}


def test_page_is_parsed_and_unknown_fields_are_ignored() -> None:
    found = parse({**make_page({**LINE, "cloud_cover": 0.1}, following="c2"), "total": 7})
    assert (found.tiles, found.next) == ((TILE,), "c2")
    assert found.size_bytes > 100
    empty = parse(make_page())
    assert (empty.tiles, empty.next) == ((), None)
    assert parse({"tiles": []}).next is None
    assert parse(make_page({**LINE, "resolution_m_per_px": 1})).tiles[0].resolution_m_per_px == 1.0


@pytest.mark.parametrize(
    ("data", "field", "problem"),
    [
        ([], "listing", "must be an object"),
        ({}, "listing.tiles", "is missing"),
        ({"tiles": {}}, "listing.tiles", "must be a list"),
        (make_page(following=7), "listing.next", "must be null, or text"),
        (make_page(following=""), "listing.next", "must be null, or text"),
        (make_page(following="x" * 1_025), "listing.next", "must be null, or text"),
        (make_page(7), "listing.tiles[0]", "must be an object"),
        (make_page(LINE, {**LINE, "z": "14"}), "listing.tiles[1].z", "must be a whole number"),
        (make_page({**LINE, "z": True}), "listing.tiles[0].z", "must be a whole number"),
        (make_page({**LINE, "z": 22}), "listing.tiles[0].z", "from 0 to 21"),
        (make_page({**LINE, "x": -1}), "listing.tiles[0].x", "from 0 to 16383"),
        (make_page({**LINE, "y": 2**40}), "listing.tiles[0].y", "from 0 to 16383"),
        (make_page({**LINE, "produced_at": 7}), "listing.tiles[0].produced_at", "must be text"),
        (make_page({**LINE, "produced_at": "x"}), "listing.tiles[0].produced_at", "ISO 8601"),
        (
            make_page({**LINE, "produced_at": "9999-12-31T23:59:59-23:59"}),
            "listing.tiles[0].produced_at",
            "ISO 8601",
        ),
        (
            make_page({**LINE, "resolution_m_per_px": "0.6"}),
            "listing.tiles[0].resolution_m_per_px",
            "must be a number",
        ),
        (
            make_page({**LINE, "resolution_m_per_px": 0}),
            "listing.tiles[0].resolution_m_per_px",
            "above 0",
        ),
        (make_page({**LINE, "estimated_bytes": -1}), "listing.tiles[0].estimated_bytes", "from 0"),
        (
            make_page({**LINE, "estimated_bytes": 1.5}),
            "listing.tiles[0].estimated_bytes",
            "a whole",
        ),
        (b'{"tiles": [NaN]}', "listing.tiles[0]", "is NaN"),
    ],
)
def test_invariant_30_invalid_field_is_named(data: Any, field: str, problem: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse(data)
    assert refusal.value.field == field
    assert problem in refusal.value.problem


@pytest.mark.parametrize("missing", LINE)
def test_invariant_30_missing_field_is_named(missing: str) -> None:
    line = {name: value for name, value in LINE.items() if name != missing}
    with pytest.raises(InvalidValueError, match="is missing") as refusal:
        parse(make_page(line))
    assert refusal.value.field == f"listing.tiles[0].{missing}"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-10-01", "2026-10-01T00:00:00", "1e9"])
def test_naive_or_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError, match="field: must be an ISO 8601 time with a time zone"):
        parse_datetime(text, field="field")


def test_time_is_converted_to_utc() -> None:
    line = {**LINE, "produced_at": "2026-10-01T15:00:00+03:00"}
    (tile,) = parse(make_page(line)).tiles
    assert tile.produced_at == datetime(2026, 10, 1, 12, tzinfo=UTC)
    assert tile.produced_at.tzinfo is UTC
