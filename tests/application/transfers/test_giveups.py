"""What is known of tiles that were given up."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from tileferry.adapters.memory import ManualClock, MemoryFdrClient, MemoryTileMetadataStore
from tileferry.application.upload.upload_retry import GIVEUP_KIND, Giveup, GiveupReader
from tileferry.domain.canonical import JsonValue
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId, TileMetadata, VotingStatus

TILE = TileId(source="cam", zoom=15, x=100, y=200)


def given_up_tile() -> TileMetadata:
    store = MemoryTileMetadataStore(clock=ManualClock())
    store.insert_metadata(
        NewTile(
            tile_id=TILE,
            flight_id="F1",
            produced_at=datetime(2025, 6, 1, tzinfo=UTC),
            resolution_m_per_px=0.6,
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(location=(1, 0), length=10, sha256="ab" * 32),
            voting_status=VotingStatus.PENDING,
        )
    )
    store.flush()
    store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)
    (row,) = store.all_tiles()
    return row


def read_giveup(*recorded: tuple[str, Mapping[str, JsonValue]]) -> Giveup:
    clock = ManualClock(1_000.0)
    recorder = MemoryFdrClient(clock=clock)
    for kind, payload in recorded:
        recorder.record(kind, payload)
        clock.advance(1)
    (giveup,) = GiveupReader(fdr_client=recorder).iter_giveups([given_up_tile()])
    return giveup


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
