"""What is known of tiles that were given up."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath

import pytest

from tileferry.adapters.memory import (
    ManualClock,
    MemoryBlobIndex,
    MemoryFdrClient,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.application.ports.fdr import GIVEUP_KIND
from tileferry.application.upload.giveups import Giveup, GiveupReview
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidStateError, NotFoundError
from tileferry.domain.tiles import NewTile, SectorClass, TileId, VotingStatus

TILE = TileId(source="cam", zoom=15, x=100, y=200)


OTHER = TileId(source="cam", zoom=15, x=100, y=201)


class FakeImages:
    """Names the file, and writes none."""

    def extract(self, tile_id: TileId, content: bytes) -> PurePath:
        return PurePath(f"{tile_id.y}-{content.decode()}")


def build_review(recorder: MemoryFdrClient) -> GiveupReview:
    index = MemoryBlobIndex()
    store = MemoryTileStore(index)
    rows = MemoryTileMetadataStore(clock=ManualClock(), index=index)
    for tile_id in (TILE, OTHER):
        rows.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id="F1",
                produced_at=datetime(2025, 6, 1, tzinfo=UTC),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=store.write_tile(tile_id, b"image"),
                voting_status=VotingStatus.PENDING,
            )
        )
    rows.flush()
    rows.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)
    return GiveupReview(
        tiles=rows,
        tile_store=lambda: store,
        images=FakeImages,
        fdr_client=recorder,
        build_reopening_sql=lambda tile_id: f"reopen {tile_id}",
    )


@pytest.fixture
def review() -> GiveupReview:
    return build_review(MemoryFdrClient(clock=ManualClock()))


def read_giveup(*recorded: tuple[str, Mapping[str, JsonValue]]) -> Giveup:
    clock = ManualClock(1_000.0)
    recorder = MemoryFdrClient(clock=clock)
    for kind, payload in recorded:
        recorder.record(kind, payload)
        clock.advance(1)
    (giveup,) = build_review(recorder).iter_giveups()
    return giveup


def test_giveup_carries_its_reopening_statement(review: GiveupReview) -> None:
    giveup = review.get_giveup(TILE)
    assert (giveup.tile.tile_id, giveup.reopening_sql) == (TILE, f"reopen {TILE}")
    assert [*review.iter_giveups("F1")] == [giveup]
    assert [*review.iter_giveups("F2")] == []


def test_tile_that_is_not_given_up_is_refused(review: GiveupReview) -> None:
    with pytest.raises(InvalidStateError, match="is pending, not given up"):
        review.get_giveup(OTHER)
    with pytest.raises(NotFoundError, match="tile cam/1/0/0 not found"):
        review.get_giveup(TileId(source="cam", zoom=1, x=0, y=0))


def test_image_is_extracted_from_the_cache(review: GiveupReview) -> None:
    assert review.extract_image(TILE) == PurePath("200-image")


def test_giveup_has_last_rejection_reason() -> None:
    said: Mapping[str, JsonValue] = {"tile_id": str(TILE), "last_rejection_reason": "blurred"}
    other: Mapping[str, JsonValue] = {"tile_id": "cam/15/1/1", "last_rejection_reason": "dark"}
    found = read_giveup(("c11.upload.other", said), (GIVEUP_KIND, said), (GIVEUP_KIND, other))
    assert (found.reason, found.given_up_at_s) == ("blurred", 1_001.0)
    assert found.tile.tile_id == TILE


def test_giveup_without_record_has_no_reason() -> None:
    found = read_giveup()
    assert (found.reason, found.given_up_at_s) == (None, None)


@pytest.mark.parametrize("reason", [None, 7])
def test_non_text_reason_is_none(reason: JsonValue) -> None:
    found = read_giveup((GIVEUP_KIND, {"tile_id": str(TILE), "last_rejection_reason": reason}))
    assert (found.reason, found.given_up_at_s) == (None, 1_000.0)
