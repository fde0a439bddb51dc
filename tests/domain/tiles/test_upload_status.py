"""The statuses of many tiles in little memory."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import PerTileStatus, TileId, TileStatuses, TileUploadStatus
from tileferry.domain.tiles.tile_id import ZOOM_MAX
from tileferry.domain.tiles.upload_status import SOURCES_MAX

ACCEPTED, DUPLICATE = TileUploadStatus.ACCEPTED, TileUploadStatus.DUPLICATE
REJECTED, UNREADABLE = TileUploadStatus.REJECTED, TileUploadStatus.UNREADABLE


def create_status(
    number: int = 0, status: TileUploadStatus = ACCEPTED, reason: str | None = None
) -> PerTileStatus:
    tile = TileId(source="flight-f1", zoom=ZOOM_MAX, x=number // 1_000, y=number % 1_000)
    return PerTileStatus(tile_id=tile, status=status, reason=reason)


@st.composite
def draw_status(draw: st.DrawFn) -> PerTileStatus:
    zoom = draw(st.integers(0, ZOOM_MAX))
    index = st.integers(0, 2**zoom - 1)
    tile = TileId(source=draw(st.sampled_from("abc")), zoom=zoom, x=draw(index), y=draw(index))
    return PerTileStatus(
        tile_id=tile,
        status=draw(st.sampled_from(TileUploadStatus)),
        reason=draw(st.none() | st.just("why")),
        attempt=draw(st.none() | st.just("key")),
    )


@given(st.lists(draw_status(), max_size=20))
def test_statuses_are_returned_as_they_were_added(entries: list[PerTileStatus]) -> None:
    statuses = TileStatuses(entries)
    assert list(statuses) == entries
    assert statuses == tuple(entries)
    assert hash(statuses) == hash(tuple(entries))
    assert [statuses[place] for place in range(-len(entries), len(entries))] == entries * 2
    assert statuses[1:5] == tuple(entries[1:5])
    assert list(statuses.failures) == [one for one in entries if not one.status.acknowledged]
    acknowledged = sum(entry.status.acknowledged for entry in entries)
    assert statuses.tiles_acknowledged == acknowledged
    repeats = len({entry.tile_id for entry in entries}) < len(entries)
    assert [statuses.has_repeated_tile(), statuses.has_repeated_tile()] == [repeats, repeats]


def test_statuses_differ_by_length_content_and_kind() -> None:
    statuses = TileStatuses([create_status(1), create_status(2, REJECTED, "bad")])
    assert statuses != TileStatuses([create_status(1)])
    assert statuses != (create_status(1), create_status(2, REJECTED, "worse"))
    assert statuses != 2
    assert repr(statuses) == "<2 statuses>"


def test_place_outside_is_an_index_error() -> None:
    for statuses in (TileStatuses(), TileStatuses([create_status()])):
        with pytest.raises(IndexError):
            statuses[1]


def test_repeated_tile_is_found_among_many_with_any_status() -> None:
    statuses = TileStatuses(map(create_status, range(20_000)))
    assert not statuses.has_repeated_tile()
    statuses.append(create_status(777, DUPLICATE))
    assert statuses.has_repeated_tile()
    assert statuses.tally == {ACCEPTED: 20_000, DUPLICATE: 1}


def test_more_sources_than_fit_are_refused() -> None:
    statuses = TileStatuses()
    tiles = (TileId(source=f"s{number}", zoom=0, x=0, y=0) for number in range(SOURCES_MAX + 1))
    entries = (PerTileStatus(tile_id=tile, status=ACCEPTED) for tile in tiles)
    statuses.extend(islice(entries, SOURCES_MAX))
    assert statuses[-1].tile_id.source == f"s{SOURCES_MAX - 1}"
    with pytest.raises(InvalidValueError, match="the source after the 65,536 that a report"):
        statuses.append(next(entries))
