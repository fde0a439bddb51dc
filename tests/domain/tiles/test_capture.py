"""What an aircraft captured: which tile a file is, what its picture is, and what is said of it."""

from datetime import UTC, datetime

import mercantile
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    CaptureFacts,
    TileId,
    build_capture_source,
    compute_ground_resolution,
    is_system_file,
    parse_captured_tile,
)
from tileferry.domain.tiles.capture import TileScheme

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)


def test_tile_id_is_parsed_from_path() -> None:
    assert parse_captured_tile(("16", "39000", "22000.png"), "f1") == TileId(
        source="flight-f1", zoom=16, x=39_000, y=22_000
    )


@pytest.mark.parametrize(
    "path",
    [
        "16/39000", "16/39000/22000", "16/39000/22000.png/x", "a/39000/22000.png",
        "16/x/22000.png", "16/39000/y.png", "016/39000/22000.png", "16/39000/-1.png",
        "16/39000/22000.", "16/39000/22000.png.tmp", "16/39000/٣.png", "readme.txt", "",
        "16/70000/22000.png", "99/1/1.png",
    ],
)  # fmt: skip
def test_invalid_tile_path_is_rejected(path: str) -> None:
    with pytest.raises(InvalidValueError):
        parse_captured_tile(tuple(path.split("/")), "f1")


def test_rows_from_the_south_are_flipped() -> None:
    path = ("16", "39000", "43535.png")
    expected = parse_captured_tile(("16", "39000", "22000.png"), "f1")
    assert parse_captured_tile(path, "f1", TileScheme.TMS) == expected
    assert parse_captured_tile(("0", "0", "0.png"), "f1", TileScheme.TMS).y == 0
    with pytest.raises(InvalidValueError, match="43536"):
        parse_captured_tile(("4", "1", "43536.png"), "f1", TileScheme.TMS)


@pytest.mark.parametrize(
    "content",
    [
        b'{"name": "sat", "format": "png", "bounds": "36,50,37,51", "minzoom": "10"}',
        b'{"tilejson": "3.0.0", "tiles": [], "vector_layers": []}',
    ],
)
def test_metadata_of_other_programs_is_ignored(content: bytes) -> None:
    assert CaptureFacts.parse(content) == CaptureFacts()
    dated = content[:-1] + b', "captured_at": "2026-10-20T10:00:00Z"}'
    assert CaptureFacts.parse(dated).captured_at == datetime(2026, 10, 20, 10, tzinfo=UTC)


@given(NAMES, NAMES)
def test_capture_source_is_unique_per_flight(one: str, other: str) -> None:
    TileId(source=build_capture_source(one), zoom=1, x=0, y=0)  # takes it
    assert (build_capture_source(one) == build_capture_source(other)) == (one == other)


def test_flights_differing_by_case_have_different_sources() -> None:
    assert build_capture_source("f1") == "flight-f1"
    assert build_capture_source("F1").startswith("flight-f1-")


@given(st.integers(0, 21), st.data())
def test_ground_resolution_is_at_most_projected_resolution(zoom: int, data: st.DataObject) -> None:
    last = 2**zoom - 1
    x, y = data.draw(st.integers(0, last)), data.draw(st.integers(0, last))
    found = compute_ground_resolution(TileId(source="cam", zoom=zoom, x=x, y=y))
    box = mercantile.bounds(x, y, zoom)
    south, north = (mercantile.xy(0, lat)[1] for lat in (box.south, box.north))
    flat = (north - south) / 256
    assert 0 < found <= flat * (1 + 1e-9)


def test_ground_resolution_at_known_places() -> None:
    assert compute_ground_resolution(TileId(source="cam", zoom=0, x=0, y=0)) == pytest.approx(
        156_543.03, 1e-6
    )
    near_kharkiv = TileId(source="cam", zoom=16, x=39_000, y=22_000)
    assert compute_ground_resolution(near_kharkiv) == pytest.approx(1.510, 1e-3)


def test_capture_facts_are_parsed() -> None:
    facts = CaptureFacts.parse(
        b'{"captured_at": "2026-10-20T10:00:00+02:00", "resolution_m_per_px": 1}'
    )
    assert facts == CaptureFacts(
        captured_at=datetime(2026, 10, 20, 8, tzinfo=UTC), resolution_m_per_px=1.0
    )
    assert CaptureFacts.parse(b"{}") == CaptureFacts()
    assert CaptureFacts.parse(b'{"captured_at": null}') == CaptureFacts()


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", "metadata.json"),
        (b"[]", "metadata.json"),
        (b'{"captured": "2026-10-20T10:00:00Z"}', r"metadata\.json\.captured"),
        (b'{"captured_at": 5}', r"metadata\.json\.captured_at"),
        (b'{"captured_at": "yesterday"}', r"metadata\.json\.captured_at"),
        (b'{"captured_at": "2026-10-20T10:00:00"}', r"metadata\.json\.captured_at"),
        (b'{"resolution_m_per_px": true}', r"metadata\.json\.resolution_m_per_px"),
        (b'{"resolution_m_per_px": "0.6"}', r"metadata\.json\.resolution_m_per_px"),
        (b'{"resolution_m_per_px": 0}', "resolution_m_per_px"),
        (b'{"resolution_m_per_px": -1.5}', "resolution_m_per_px"),
    ],
)
def test_invalid_capture_facts_are_rejected_by_field(content: bytes, field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        CaptureFacts.parse(content)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".DS_Store", True),
        ("._22000.png", True),
        (".Trashes", True),
        ("System Volume Information", True),
        ("THUMBS.DB", True),
        ("desktop.ini", True),
        ("tilemapresource.xml", True),
        ("22000.kml", True),
        ("leaflet.HTML", True),
        ("22000.png.aux.xml", True),
        ("22000.png", False),
        ("readme.txt", False),
    ],
)
def test_operating_system_files_are_litter(name: str, *, expected: bool) -> None:
    assert is_system_file(name) is expected
