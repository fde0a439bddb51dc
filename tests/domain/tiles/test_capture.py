"""What an aircraft captured: which tile a file is, what its picture is, and what is said of it."""

from datetime import UTC, datetime

import mercantile
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    TILE_BYTES_MAX,
    CaptureFacts,
    TileId,
    capture_source,
    captured_tile,
    ground_resolution,
    image_kind,
    is_litter,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)


def test_a_path_names_its_tile() -> None:
    assert captured_tile(("16", "39000", "22000.png"), "f1") == TileId(
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
def test_what_is_no_tile_is_refused_by_its_path(path: str) -> None:
    with pytest.raises(InvalidValueError):
        captured_tile(tuple(path.split("/")), "f1")


@given(NAMES, NAMES)
def test_each_flight_has_a_source_of_its_own(one: str, other: str) -> None:
    TileId(source=capture_source(one), zoom=1, x=0, y=0)  # takes it
    assert (capture_source(one) == capture_source(other)) == (one == other)


def test_flights_that_differ_by_their_case_do_not_mix() -> None:
    assert capture_source("f1") == "flight-f1"
    assert capture_source("F1").startswith("flight-f1-")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "png"),
        (b"\xff\xd8\xff\xe0rest", "jpg"),
        (b"RIFF\n\x00\x00\x00WEBPVP8 ", "webp"),
    ],
)
def test_a_picture_is_known_by_its_first_bytes(content: bytes, kind: str) -> None:
    assert image_kind(content) == kind


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"<html>", "is no PNG, JPEG or WebP"),
        (b"\x89PNG", "is no PNG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(TILE_BYTES_MAX), "is too large"),
    ],
)
def test_what_is_no_picture_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        image_kind(content)


@given(st.integers(0, 21), st.data())
def test_a_pixel_on_the_ground_is_as_long_as_the_tile_is_wide(
    zoom: int, data: st.DataObject
) -> None:
    last = 2**zoom - 1
    x, y = data.draw(st.integers(0, last)), data.draw(st.integers(0, last))
    found = ground_resolution(TileId(source="cam", zoom=zoom, x=x, y=y))
    box = mercantile.bounds(x, y, zoom)
    south, north = (mercantile.xy(0, lat)[1] for lat in (box.south, box.north))
    flat = (north - south) / 256
    assert 0 < found <= flat * (1 + 1e-9)


def test_the_resolution_of_a_known_place() -> None:
    assert ground_resolution(TileId(source="cam", zoom=0, x=0, y=0)) == pytest.approx(
        156_543.03, 1e-6
    )
    near_kharkiv = TileId(source="cam", zoom=16, x=39_000, y=22_000)
    assert ground_resolution(near_kharkiv) == pytest.approx(1.510, 1e-3)


def test_facts_may_be_given_for_all_tiles() -> None:
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
def test_facts_that_make_no_sense_are_refused_by_their_field(content: bytes, field: str) -> None:
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
        ("22000.png", False),
        ("readme.txt", False),
    ],
)
def test_what_systems_leave_on_cards_is_litter(name: str, *, expected: bool) -> None:
    assert is_litter(name) is expected
