"""A tile's voting status: the declared moves, and the giveup."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import IllegalTransitionError, InvalidValueError
from tileferry.domain.tiles import (
    MAX_PER_TILE_ATTEMPTS,
    VOTING_MOVES,
    TileId,
    VotingStatus,
    move_status,
    should_give_up,
)

TILE = TileId(source="sat", zoom=15, x=1, y=2)
DECLARED = {
    (VotingStatus.PENDING, VotingStatus.UPLOADED),
    (VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP),
    (VotingStatus.UPLOADED, VotingStatus.TRUSTED),
    (VotingStatus.UPLOADED, VotingStatus.REJECTED),
}


def test_voting_statuses_include_upload_giveup() -> None:
    assert {status.name: status.value for status in VotingStatus} == {
        "PENDING": "pending",
        "UPLOADED": "uploaded",
        "TRUSTED": "trusted",
        "REJECTED": "rejected",
        "UPLOAD_GIVEUP": "upload_giveup",
    }


@pytest.mark.parametrize("current", VotingStatus)
@pytest.mark.parametrize("target", VotingStatus)
def test_only_declared_moves_are_allowed(current: VotingStatus, target: VotingStatus) -> None:
    if current is target or (current, target) in DECLARED:
        assert move_status(TILE, current, target) is target
        return
    with pytest.raises(IllegalTransitionError) as caught:
        move_status(TILE, current, target)
    assert caught.value.status == current.value
    assert caught.value.subject == "tile sat/15/1/2"


def test_move_table_is_complete_and_immutable() -> None:
    assert {(a, b) for a, onward in VOTING_MOVES.items() for b in onward} == DECLARED
    assert set(VOTING_MOVES) == set(VotingStatus)
    table: Any = VOTING_MOVES
    with pytest.raises(TypeError):
        table[VotingStatus.UPLOAD_GIVEUP] = frozenset({VotingStatus.PENDING})


@given(st.lists(st.sampled_from(VotingStatus), max_size=6))
def test_giveup_is_final_for_any_sequence_of_moves(targets: list[VotingStatus]) -> None:
    status = VotingStatus.UPLOAD_GIVEUP
    for target in targets:
        if target is not status:
            with pytest.raises(IllegalTransitionError, match="an operator must decide"):
                move_status(TILE, status, target)
        else:
            status = move_status(TILE, status, target)
    assert status is VotingStatus.UPLOAD_GIVEUP


@pytest.mark.parametrize(
    ("current", "target", "message"),
    [
        (
            VotingStatus.PENDING,
            VotingStatus.TRUSTED,
            (
                "tile sat/15/1/2 is pending: tileferry may not trust it: "
                "it can only become upload_giveup or uploaded"
            ),
        ),
        (
            VotingStatus.TRUSTED,
            VotingStatus.PENDING,
            "tile sat/15/1/2 is trusted: tileferry may not reopen it: this status is final",
        ),
    ],
)
def test_illegal_move_error_names_possible_moves(
    current: VotingStatus, target: VotingStatus, message: str
) -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        move_status(TILE, current, target)
    assert str(caught.value) == message


def test_fifth_rejected_attempt_gives_up() -> None:
    assert MAX_PER_TILE_ATTEMPTS == 5
    assert [should_give_up(attempts) for attempts in range(7)] == [False] * 5 + [True, True]


@given(st.integers(0, 50), st.integers(1, 50))
def test_gives_up_when_attempts_reach_limit(attempts: int, budget: int) -> None:
    assert should_give_up(attempts, budget) == (attempts >= budget)


@pytest.mark.parametrize(
    ("attempts", "budget", "field"),
    [
        (-1, 5, "upload_attempts"),
        (True, 5, "upload_attempts"),
        (1, 0, "max_per_tile_attempts"),
        (1, 2.5, "max_per_tile_attempts"),
    ],
)
def test_invalid_attempt_limits_are_rejected(attempts: int, budget: Any, field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        should_give_up(attempts, budget)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("current", "target", "field"),
    [("pending", VotingStatus.UPLOADED, "current"), (VotingStatus.PENDING, "uploaded", "target")],
)
def test_status_as_text_is_rejected(current: Any, target: Any, field: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{field}: must be a VotingStatus"):
        move_status(TileId(source="cam", zoom=1, x=0, y=0), current, target)
