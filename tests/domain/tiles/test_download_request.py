"""Download requests: what they normalise, their hash, and the provider's listing."""

import math
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import PurePath, PurePosixPath
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    TILE_BYTES_MAX,
    BBox,
    DownloadRequest,
    SectorClass,
    Shape,
    TileId,
    TileSummary,
)
from tileferry.domain.tiles.area import Area

KEY_HASH = sha256(b"a test key").hexdigest()
FIELDS: dict[str, Any] = {
    "flight_id": "F-042",
    "bbox": BBox.parse("36.1,49.9,36.4,50.1"),
    "zoom_levels": (15, 16),
    "sector_class": SectorClass.ACTIVE_CONFLICT,
    "cache_root": PurePosixPath("/cache"),
}


def make_request(**changed: Any) -> DownloadRequest:
    return DownloadRequest(**{**FIELDS, **changed})


def test_request_holds_the_area_it_is_made_of() -> None:
    area = Area(**{name: FIELDS[name] for name in ("bbox", "zoom_levels", "sector_class")})
    request = DownloadRequest(flight_id="F-042", area=area, cache_root=PurePosixPath("/cache"))
    assert request == make_request()
    assert request.area is area
    assert (request.bbox, request.zoom_levels, request.sector_class) == tuple(
        FIELDS[name] for name in ("bbox", "zoom_levels", "sector_class")
    )
    assert evolve(request, zoom_levels=[3]) == make_request(zoom_levels=(3,))  # type: ignore[misc]  # its constructor is written out


levels = st.lists(st.integers(0, 21), min_size=1, max_size=6)


@given(levels)
def test_zoom_levels_are_sorted_and_unique(zooms: list[int]) -> None:
    shuffled = [*zooms[::-1], zooms[0]]
    assert make_request(zoom_levels=shuffled).zoom_levels == tuple(sorted(set(zooms)))
    assert make_request(zoom_levels=shuffled) == make_request(zoom_levels=zooms)
    assert make_request(zoom_levels=shuffled).request_hash(KEY_HASH) == make_request(
        zoom_levels=zooms
    ).request_hash(KEY_HASH)


def test_spec5_hash_is_16_digits_over_area_zoom_sector_and_key() -> None:
    identity = f"36.1,49.9,36.4,50.1|15,16|active_conflict|{KEY_HASH}"
    expected = sha256(identity.encode()).hexdigest()[:16]
    assert make_request().request_hash(KEY_HASH) == expected
    assert make_request().journal_name(KEY_HASH) == f"F-042__{expected}.json"


def test_spec5_hash_is_stable_across_versions() -> None:
    # A journal written by an older version must still be found.
    assert make_request().request_hash(KEY_HASH) == "b160e02c367345c3"


def test_hash_of_shape_is_stable_and_not_that_of_its_box() -> None:
    shape = Shape.from_degrees(polygons=[[[(36.1, 49.9), (36.4, 49.9), (36.2, 50.1)]]])
    area = Area.from_place(shape, [15], SectorClass.STABLE_REAR)
    request = DownloadRequest(flight_id="F7", area=area, cache_root=PurePath("/cache"))
    box = DownloadRequest(
        flight_id="F7", area=evolve(area, shape=None), cache_root=PurePath("/cache")
    )
    assert request.request_hash(KEY_HASH) == "0b0bc7c24ba4c665"
    assert request.request_hash(KEY_HASH) != box.request_hash(KEY_HASH)


@pytest.mark.parametrize(
    "changed",
    [
        {"bbox": BBox.parse("36.1,49.9,36.4,50.2")},
        {"zoom_levels": (15,)},
        {"zoom_levels": (1, 5, 16)},
        {"sector_class": SectorClass.STABLE_REAR},
    ],
)
def test_different_request_has_different_hash(changed: dict[str, Any]) -> None:
    assert make_request(**changed).request_hash(KEY_HASH) != make_request().request_hash(KEY_HASH)


def test_hash_depends_on_key_but_not_on_flight_or_cache_root() -> None:
    ours = make_request().request_hash(KEY_HASH)
    assert make_request().request_hash(sha256(b"other").hexdigest()) != ours
    assert make_request(flight_id="other", cache_root=PurePath("x")).request_hash(KEY_HASH) == ours


def test_equal_numbers_have_same_hash() -> None:
    box = BBox(west=-0.0, south=49, east=1, north=50.0)
    same = BBox(west=0, south=49.0, east=1.0, north=50)
    assert make_request(bbox=box).request_hash(KEY_HASH) == make_request(bbox=same).request_hash(
        KEY_HASH
    )


@pytest.mark.parametrize("secret", [b"raw-secret", "", None])
def test_invalid_key_hash_is_rejected_without_showing_it(secret: Any) -> None:
    with pytest.raises(InvalidValueError, match="service_api_key_hash") as caught:
        make_request().request_hash(secret)
    assert "raw-secret" not in str(caught.value) + repr(caught.value)


def test_request_coverage_counts_and_contains_tiles() -> None:
    area = make_request(bbox=BBox.parse("-180,-90,180,90"), zoom_levels=[0, 1])
    assert area.coverage.count == 5
    assert area.coverage.contains(TileId(source="sat", zoom=1, x=1, y=1))
    assert not area.coverage.contains(TileId(source="sat", zoom=2, x=1, y=1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flight_id", ""),
        ("flight_id", "../x"),
        ("flight_id", "a/b"),
        ("flight_id", "a\0"),
        ("flight_id", "f" * 65),
        ("bbox", "36.1,49.9,36.4,50.1"),
        ("zoom_levels", ()),
        ("zoom_levels", (22,)),
        ("zoom_levels", (-1,)),
        ("zoom_levels", (True,)),
        ("sector_class", "active_conflict"),
        ("cache_root", "/cache"),
    ],
)
def test_invalid_field_is_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=field):
        make_request(**{field: value})


def make_summary(**changed: Any) -> TileSummary:
    fields: dict[str, Any] = {
        "tile_id": TileId(source="sat", zoom=15, x=1, y=1),
        "produced_at": datetime(2026, 1, 1, tzinfo=UTC),
        "resolution_m_per_px": 0.5,
        "estimated_bytes": 20_000,
    }
    return TileSummary(**{**fields, **changed})


@given(st.datetimes(timezones=st.just(UTC)), st.floats(0.001, 1e6), st.integers(0, TILE_BYTES_MAX))
def test_tile_summary_keeps_its_values(when: datetime, scale: float, size: int) -> None:
    line = make_summary(produced_at=when, resolution_m_per_px=scale, estimated_bytes=size)
    assert (line.produced_at, line.resolution_m_per_px, line.estimated_bytes) == (when, scale, size)


class IntSubclass(int):
    """A whole number of another class, as libraries have them."""


def test_tile_summary_normalises_types_and_time_zone() -> None:
    kyiv = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert make_summary(produced_at=kyiv, estimated_bytes=IntSubclass(20_000)) == make_summary()
    assert type(make_summary(resolution_m_per_px=1).resolution_m_per_px) is float


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tile_id", "sat/15/1/1"),
        ("produced_at", datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
        ("produced_at", "2026-01-01"),
        ("produced_at", timedelta(1)),
        ("resolution_m_per_px", 0),
        ("resolution_m_per_px", -0.5),
        ("resolution_m_per_px", math.nan),
        ("resolution_m_per_px", math.inf),
        ("resolution_m_per_px", 10**400),
        ("resolution_m_per_px", True),
        ("resolution_m_per_px", "0.5"),
        ("estimated_bytes", -1),
        ("estimated_bytes", 1.5),
        ("estimated_bytes", TILE_BYTES_MAX + 1),
    ],
)
def test_invalid_tile_summary_is_rejected(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=f"TileSummary.{field}"):
        make_summary(**{field: value})
