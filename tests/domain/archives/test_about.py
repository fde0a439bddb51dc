"""What an archive says of itself, of its tiles, and which format a name asks for."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tileferry.domain.archives import (
    ABOUT_BYTES_MAX,
    AboutTally,
    ArchiveFormat,
    ContentTally,
    TileFacts,
    describes_archive,
    facts_line,
    flipped_row,
    format_of,
    kind_of,
    parse_facts_line,
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


def test_the_description_covers_all_levels() -> None:
    tally = AboutTally()
    for place, kind in ((tile(1, 1, 0), "jpg"), (tile(2, 1, 1), "png"), (tile(2, 1, 0), "png")):
        tally.add(place, kind)
    about = tally.about(name="area", attribution="© somebody")
    assert about.json() == {
        "name": "area",
        "format": "png",
        "bounds": "-90.0000000,0.0000000,180.0000000,85.0511288",
        "center": "45.0000000,42.5255644,1",
        "minzoom": "1",
        "maxzoom": "2",
        "type": "baselayer",
        "attribution": "© somebody",
        "tiles": {"jpg": 1, "png": 2},
    }
    assert about.only_kind is None
    assert "attribution" not in tally.about(name="area", attribution=None).texts()


def test_an_export_is_told_by_its_description() -> None:
    tally = AboutTally()
    tally.add(tile(3, 1, 1), "png")
    told = tally.about(name="area", attribution=None).json()
    assert describes_archive(json.dumps(told).encode())
    for other in (
        {**told, "type": "overlay"},
        {key: value for key, value in told.items() if key != "tiles"},
        list(told),
    ):
        assert not describes_archive(json.dumps(other).encode())
    assert not describes_archive(b"")
    assert not describes_archive(json.dumps(told).encode() + b" " * ABOUT_BYTES_MAX)


def test_of_equally_many_kinds_the_first_by_name_is_named() -> None:
    tally = AboutTally()
    tally.add(tile(3, 1, 1), "webp")
    tally.add(tile(3, 1, 2), "jpg")
    assert tally.about(name="a", attribution=None).main_kind == "jpg"


def test_what_is_no_picture_is_called_so() -> None:
    assert kind_of(b"\xff\xd8\xff...") == "jpg"
    assert kind_of(b"text") == kind_of(b"") == "bin"


def test_tallies_are_equal_when_the_tiles_are_in_any_order() -> None:
    one, two, other = ContentTally(), ContentTally(), ContentTally()
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
        ("area.d", ArchiveFormat.TREE),
        (".mbtiles", ArchiveFormat.TREE),
    ],
)
def test_the_suffix_tells_the_format(name: str, expected: ArchiveFormat) -> None:
    assert format_of(name) is expected


def test_rows_are_counted_from_the_other_edge() -> None:
    assert [flipped_row(2, row) for row in range(4)] == [3, 2, 1, 0]
    assert flipped_row(0, 0) == 0


def test_facts_survive_their_line() -> None:
    facts = TileFacts(produced_at=DAY, resolution_m_per_px=0.6, sha256=DIGEST)
    line = facts_line(tile(3, 1, 2), facts)
    assert line.endswith(b"}\n")
    assert parse_facts_line(line, number=1, source="sat") == (tile(3, 1, 2), facts)


def test_facts_are_those_of_the_cache_in_utc() -> None:
    moment = DAY.astimezone(timezone(timedelta(hours=3)))
    known = TileMetadata(
        tile_id=tile(3, 1, 2),
        flight_id="F1",
        produced_at=moment,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.STABLE_REAR,
        freshness=FreshnessLabel.FRESH,
        blob=BlobRef(segment=1, offset=0, length=3, sha256=DIGEST),
        voting_status=VotingStatus.TRUSTED,
        stored_at=DAY,
        last_used_at=DAY,
    )
    assert TileFacts.of(known).texts() == ("2026-06-01T12:30:00+00:00", 0.6, DIGEST)


def test_each_fact_may_be_missing() -> None:
    assert TileFacts.read(None, None, None) == TileFacts()
    assert TileFacts().texts() == (None, None, None)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[]", "must be an object"),
        (b'{"tile": 7}', "line 4.tile: must be text"),
        (b'{"tile": "3/9/9"}', "line 4.tile"),
        (b'{"tile": "../x"}', "line 4.tile"),
        (b'{"tile": "3/1/1", "produced_at": 7}', "must be a time in text"),
        (b'{"tile": "3/1/1", "produced_at": "soon"}', "ISO 8601"),
        (b'{"tile": "3/1/1", "resolution_m_per_px": true}', "must be a number"),
        (b'{"tile": "3/1/1", "resolution_m_per_px": -1}', "resolution_m_per_px"),
        (b'{"tile": "3/1/1", "sha256": "short"}', "sha256"),
        (b'{"tile": "' + b"3" * 2_000 + b'"}', "longer than"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem) as caught:
        parse_facts_line(line, number=4, source="sat")
    assert "line 4" in str(caught.value)
