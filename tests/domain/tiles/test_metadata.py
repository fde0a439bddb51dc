"""What the cache knows of a tile, where its bytes are, and which of two versions stays."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    TILE_BYTES_MAX,
    BlobRef,
    FreshnessLabel,
    NewTile,
    NewTiles,
    SectorClass,
    TileId,
    TileMetadata,
    TileValidators,
    VotingStatus,
    replaces,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
BLOB = BlobRef(location=(1, 0), length=20_000, sha256="ab" * 32)
TILE = TileId(source="sat", zoom=15, x=19_700, y=11_000)


def make_new_tile(**fields: Any) -> NewTile:
    given_fields: dict[str, Any] = {
        "tile_id": TILE,
        "flight_id": "flight-7",
        "produced_at": NOON,
        "resolution_m_per_px": 0.6,
        "sector_class": SectorClass.STABLE_REAR,
        "blob": BLOB,
    }
    return NewTile(**given_fields | fields)


def make_stored_tile(**fields: Any) -> TileMetadata:
    given_fields: dict[str, Any] = {
        "tile_id": TILE,
        "flight_id": "flight-7",
        "produced_at": NOON,
        "resolution_m_per_px": 0.6,
        "sector_class": SectorClass.STABLE_REAR,
        "freshness": FreshnessLabel.FRESH,
        "blob": BLOB,
        "voting_status": VotingStatus.TRUSTED,
        "stored_at": NOON,
        "last_used_at": NOON,
    }
    return TileMetadata(**given_fields | fields)


def test_downloaded_tile_is_trusted_by_default() -> None:
    assert make_new_tile().voting_status is VotingStatus.TRUSTED
    assert make_stored_tile().upload_attempts == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tile_id", "sat/15/19700/11000"),
        ("flight_id", "../7"),
        ("flight_id", ""),
        ("produced_at", NOON.replace(tzinfo=None)),
        ("resolution_m_per_px", 0),
        ("resolution_m_per_px", float("nan")),
        ("sector_class", "stable_rear"),
        ("blob", None),
        ("voting_status", "trusted"),
    ],
)
def test_invalid_new_tile_is_rejected_by_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=rf"NewTile\.{field}"):
        make_new_tile(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("produced_at", NOON.replace(tzinfo=None)),
        ("upload_attempts", -1),
        ("upload_attempts", True),
        ("stored_at", "2026-06-01"),
        ("last_used_at", None),
    ],
)
def test_invalid_tile_metadata_is_rejected_by_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=rf"TileMetadata\.{field}"):
        make_stored_tile(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("location", (1, -1)),
        ("location", (-1, 0)),
        ("location", (True, 0)),
        ("location", (1, 1.5)),
        ("location", (1,)),
        ("location", [1, 0]),
        ("location", 1),
        ("length", -1),
        ("length", TILE_BYTES_MAX + 1),
        ("sha256", "ab" * 31),
        ("sha256", "AB" * 32),
        ("sha256", "ab" * 32 + "\n"),
        ("sha256", "\N{ARABIC-INDIC DIGIT ONE}" * 64),
        ("sha256", b"ab" * 32),
        ("sha256", None),
    ],
)
def test_invalid_blob_ref_is_rejected_by_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=rf"BlobRef\.{field}"):
        attrs.evolve(BLOB, **{field: value})


def test_blob_length_may_be_zero_or_maximum() -> None:
    assert attrs.evolve(BLOB, length=0).length == 0
    assert attrs.evolve(BLOB, length=TILE_BYTES_MAX).length == TILE_BYTES_MAX


@pytest.mark.parametrize(
    ("later_by", "stays"),
    [(-1, "existing"), (0, "new"), (1, "new")],
    ids=["older", "same", "newer"],
)
@pytest.mark.parametrize(
    "status", [VotingStatus.TRUSTED, VotingStatus.UPLOADED, VotingStatus.REJECTED]
)
def test_newer_or_equal_production_date_replaces(
    later_by: int, stays: str, status: VotingStatus
) -> None:
    new = make_new_tile(produced_at=NOON + timedelta(seconds=later_by), flight_id="another")
    assert replaces(new, make_stored_tile(voting_status=status)) == (stays == "new")


def test_production_dates_are_compared_by_instant() -> None:
    from_kyiv = datetime.fromisoformat("2026-06-01T14:59:59+03:00")
    assert not replaces(make_new_tile(produced_at=from_kyiv), make_stored_tile())


@pytest.mark.parametrize(
    ("status", "flight_id", "replaced"),
    [
        (VotingStatus.PENDING, "flight-7", True),
        (VotingStatus.PENDING, "another", False),
        (VotingStatus.TRUSTED, "flight-7", False),
        (VotingStatus.TRUSTED, "another", False),
    ],
)
def test_pending_tile_is_replaced_only_by_pending_tile_of_same_flight(
    status: VotingStatus, flight_id: str, *, replaced: bool
) -> None:
    newer = make_new_tile(
        produced_at=NOON + timedelta(days=1), flight_id=flight_id, voting_status=status
    )
    assert replaces(newer, make_stored_tile(voting_status=VotingStatus.PENDING)) == replaced


def test_older_capture_of_same_flight_does_not_replace_newer() -> None:
    older = make_new_tile(produced_at=NOON - timedelta(days=1), voting_status=VotingStatus.PENDING)
    assert not replaces(older, make_stored_tile(voting_status=VotingStatus.PENDING))


@pytest.mark.parametrize(
    "status", [VotingStatus.TRUSTED, VotingStatus.UPLOADED, VotingStatus.REJECTED]
)
def test_invariant_7_uploaded_capture_is_not_ingested_again(
    status: VotingStatus,
) -> None:
    later = NOON + timedelta(days=1)
    again = make_new_tile(produced_at=later, voting_status=VotingStatus.PENDING)
    assert not replaces(again, make_stored_tile(voting_status=status))
    other = attrs.evolve(again, blob=attrs.evolve(BLOB, sha256="f" * 64))
    assert replaces(other, make_stored_tile(voting_status=status))


@pytest.mark.parametrize(
    "status",
    [VotingStatus.UPLOADED, VotingStatus.REJECTED, VotingStatus.UPLOAD_GIVEUP, "pending", None],
)
def test_new_tile_must_be_trusted_or_pending(status: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"NewTile\.voting_status: must be one of trusted"):
        make_new_tile(voting_status=status)


@given(
    st.sampled_from([VotingStatus.TRUSTED, VotingStatus.PENDING]),
    st.integers(-10, 10),
    st.sampled_from(["flight-7", "another"]),
)
def test_given_up_tile_is_never_replaced_automatically(
    status: VotingStatus, days: int, flight_id: str
) -> None:
    new = make_new_tile(
        produced_at=NOON + timedelta(days=days), flight_id=flight_id, voting_status=status
    )
    assert not replaces(
        new, make_stored_tile(voting_status=VotingStatus.UPLOAD_GIVEUP, upload_attempts=5)
    )


def test_future_production_date_does_not_win() -> None:
    true = make_new_tile(produced_at=NOON - timedelta(days=30))
    assert replaces(true, make_stored_tile(produced_at=NOON + timedelta(days=2)))
    assert not replaces(true, make_stored_tile(produced_at=NOON + timedelta(days=1)))


@pytest.mark.parametrize(
    ("etag", "last_modified", "expected"),
    [
        ('"a"', "yesterday", TileValidators(etag='"a"', last_modified="yesterday")),
        ('"a"', None, TileValidators(etag='"a"')),
        (None, "now", TileValidators(last_modified="now")),
        (None, None, None),
        ("", "", None),
        ("x" * 257, "a\nb", None),
        ("\u00e4", None, None),
    ],
)
def test_only_plain_and_short_validators_are_kept(
    etag: str | None, last_modified: str | None, expected: TileValidators | None
) -> None:
    assert TileValidators.from_headers(etag, last_modified) == expected


# Columns


def make_new_tiles(**columns: Any) -> NewTiles:
    given_columns: dict[str, Any] = {
        "flight_id": "flight-7",
        "sector_class": SectorClass.STABLE_REAR,
        "tile_ids": [TILE, attrs.evolve(TILE, x=1)],
        "produced_at": [NOON, NOON],
        "resolutions_m_per_px": [0.6, 0.7],
        "validators": [None, TileValidators(etag="a")],
        "locations": [(1, 0), (1, 9)],
        "lengths": [20_000, 0],
        "digests": [b"\xab" * 32, b"\xcd" * 32],
    }
    return NewTiles(**given_columns | columns)


def test_columns_have_the_same_tiles_as_objects() -> None:
    first, second = make_new_tiles()
    assert first == make_new_tile()
    assert second == make_new_tile(
        tile_id=attrs.evolve(TILE, x=1),
        resolution_m_per_px=0.7,
        blob=BlobRef(location=(1, 9), length=0, sha256="cd" * 32),
        validators=TileValidators(etag="a"),
    )
    assert [*NewTiles.from_tile(first), *NewTiles.from_tile(second)] == [first, second]


def test_columns_accept_all_that_a_tile_accepts() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=3)))
    tiles = make_new_tiles(produced_at=[NOON, elsewhere], voting_status=VotingStatus.PENDING)
    assert [tile.produced_at for tile in tiles] == [NOON, elsewhere]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("flight_id", "../f"),
        ("sector_class", "stable_rear"),
        ("voting_status", VotingStatus.UPLOADED),
        ("tile_ids", [TILE, "sat/15/1/1"]),
        ("produced_at", [NOON, NOON.replace(tzinfo=None)]),
        ("produced_at", [NOON, "2026-06-01"]),
        ("resolutions_m_per_px", [0.6, float("nan")]),
        ("resolutions_m_per_px", [0.6, 0.0]),
        ("resolutions_m_per_px", [0.6, "0.7"]),
        ("locations", [(1, 0), (1, -1)]),
        ("lengths", [20_000, -1]),
        ("lengths", [20_000, TILE_BYTES_MAX + 1]),
        ("lengths", [20_000, True]),
        ("digests", [b"\xab" * 32, b"\xcd" * 31]),
    ],
)
def test_invalid_column_is_rejected(column: str, values: Any) -> None:
    with pytest.raises(InvalidValueError):
        make_new_tiles(**{column: values})


@pytest.mark.parametrize(
    "column", ["produced_at", "resolutions_m_per_px", "validators", "locations", "lengths"]
)
def test_columns_of_different_length_are_rejected(column: str) -> None:
    (shorter,) = getattr(NewTiles.from_tile(make_new_tile()), column)
    with pytest.raises(ValueError, match="shorter"):
        make_new_tiles(**{column: [shorter]})
