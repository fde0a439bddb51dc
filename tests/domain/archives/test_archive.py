"""What an archive says of itself, of its tiles, and which format a name asks for."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tileferry.domain.archives import (
    DESCRIPTION_BYTES_MAX,
    ArchiveDescriptionBuilder,
    ArchiveFormat,
    ContentDigest,
    TileFacts,
    detect_format,
    detect_tile_kind,
    flip_row,
    is_archive_description,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BlobRef,
    FreshnessLabel,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
)

DAY = datetime(2026, 6, 1, 12, 30, tzinfo=UTC)
DIGEST = "ab" * 32


def tile(zoom: int, x: int, y: int) -> TileId:
    return TileId(source="sat", zoom=zoom, x=x, y=y)


def test_description_has_the_bounds_of_the_highest_level() -> None:
    tally = ArchiveDescriptionBuilder()
    for place, kind in ((tile(1, 1, 0), "jpg"), (tile(2, 1, 1), "png"), (tile(2, 1, 0), "png")):
        tally.add(place, kind)
    about = tally.build(name="area", attribution="© somebody", licence="CC0")
    assert about.credit == "© somebody, CC0"
    assert about.to_json() == {
        "name": "area",
        "format": "png",
        "bounds": "-90.0000000,0.0000000,0.0000000,85.0511288",
        "center": "-45.0000000,42.5255644,1",
        "minzoom": "1",
        "maxzoom": "2",
        "type": "baselayer",
        "attribution": "© somebody",
        "license": "CC0",
        "tiles": {"jpg": 1, "png": 2},
    }
    assert about.only_kind is None
    assert "attribution" not in tally.build(name="area", attribution=None).to_texts()


def test_export_is_recognised_by_its_description() -> None:
    tally = ArchiveDescriptionBuilder()
    tally.add(tile(3, 1, 1), "png")
    told = tally.build(name="area", attribution=None).to_json()
    assert is_archive_description(json.dumps(told).encode())
    for other in (
        {**told, "type": "overlay"},
        {key: value for key, value in told.items() if key != "tiles"},
        list(told),
    ):
        assert not is_archive_description(json.dumps(other).encode())
    assert not is_archive_description(b"")
    assert not is_archive_description(json.dumps(told).encode() + b" " * DESCRIPTION_BYTES_MAX)


def test_main_kind_tie_goes_to_first_by_name() -> None:
    tally = ArchiveDescriptionBuilder()
    tally.add(tile(3, 1, 1), "webp")
    tally.add(tile(3, 1, 2), "jpg")
    assert tally.build(name="a", attribution=None).main_kind == "jpg"


def test_non_image_content_is_kind_bin() -> None:
    assert detect_tile_kind(b"\xff\xd8\xff...") == "jpg"
    assert detect_tile_kind(b"text") == detect_tile_kind(b"") == "bin"


def test_content_tally_is_independent_of_tile_order() -> None:
    one, two, other = ContentDigest(), ContentDigest(), ContentDigest()
    items = [(tile(3, 1, 1), b"a" * 32), (tile(3, 1, 2), b"b" * 32)]
    for place, digest in items:
        one.add(place, digest)
    for place, digest in reversed(items):
        two.add(place, digest)
    for (place, _), (_, digest) in zip(items, reversed(items), strict=True):
        other.add(place, digest)
    assert one == two
    assert one.tiles == other.tiles
    assert one != other


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("area.mbtiles", ArchiveFormat.MBTILES),
        ("AREA.PMTILES", ArchiveFormat.PMTILES),
        ("area", ArchiveFormat.TREE),
        ("area-1.2", ArchiveFormat.TREE),
        (".mbtiles", ArchiveFormat.TREE),
    ],
)
def test_archive_format_is_chosen_by_suffix(name: str, expected: ArchiveFormat) -> None:
    assert detect_format(name) is expected


@pytest.mark.parametrize("name", ["area.zip", "area.d", "area.mbtile", "area.tar.GZ", "a.v2"])
def test_unknown_suffix_is_rejected(name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"unknown suffix .* use \.mbtiles, \.pm"):
        detect_format(name)


def test_flipped_row_counts_from_opposite_edge() -> None:
    assert [flip_row(2, row) for row in range(4)] == [3, 2, 1, 0]
    assert flip_row(0, 0) == 0


def test_tile_facts_from_metadata_are_in_utc() -> None:
    moment = DAY.astimezone(timezone(timedelta(hours=3)))
    known = TileMetadata(
        tile_id=tile(3, 1, 2),
        flight_id="F1",
        produced_at=moment,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.STABLE_REAR,
        freshness=FreshnessLabel.FRESH,
        blob=BlobRef(location=(1, 0), length=3, sha256=DIGEST),
        voting_status=VotingStatus.TRUSTED,
        stored_at=DAY,
        last_used_at=DAY,
    )
    assert TileFacts.from_metadata(known).to_texts() == ("2026-06-01T12:30:00+00:00", 0.6, DIGEST)


def test_every_tile_fact_is_optional() -> None:
    assert TileFacts.parse(None, None, None) == TileFacts()
    assert TileFacts().to_texts() == (None, None, None)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ((7, None, None), "must be a time in text"),
        (("soon", None, None), "ISO 8601"),
        ((None, True, None), "must be a number"),
        ((None, "0.6", None), "must be a number"),
        ((None, -1, None), "resolution_m_per_px"),
        ((None, None, "short"), "sha256"),
    ],
)
def test_invalid_tile_facts_are_rejected(
    facts: tuple[object, object, object], problem: str
) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        TileFacts.parse(*facts)
