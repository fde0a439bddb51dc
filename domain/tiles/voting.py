"""The voting status of a captured tile, and the giveup after too many rejections."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.tiles.tile_id import TileId

with import_on_call(globals()):
    from tileferry.domain.errors import IllegalTransitionError

MAX_PER_TILE_ATTEMPTS = 5


class VotingStatus(StrEnum):
    """The state of a captured tile at the provider."""

    PENDING = "pending"
    UPLOADED = "uploaded"
    TRUSTED = "trusted"
    REJECTED = "rejected"
    UPLOAD_GIVEUP = "upload_giveup"


VOTING_MOVES: Mapping[VotingStatus, frozenset[VotingStatus]] = MappingProxyType(
    {
        VotingStatus.PENDING: frozenset({VotingStatus.UPLOADED, VotingStatus.UPLOAD_GIVEUP}),
        VotingStatus.UPLOADED: frozenset({VotingStatus.TRUSTED, VotingStatus.REJECTED}),
        VotingStatus.TRUSTED: frozenset(),
        VotingStatus.REJECTED: frozenset(),
        # Only an operator can take a tile out of giveup, in the database.
        VotingStatus.UPLOAD_GIVEUP: frozenset(),
    }
)
"""The transitions that code may make."""

_VERBS = {
    VotingStatus.PENDING: "reopen",
    VotingStatus.UPLOADED: "acknowledge",
    VotingStatus.TRUSTED: "trust",
    VotingStatus.REJECTED: "reject",
    VotingStatus.UPLOAD_GIVEUP: "abandon",
}


def move_status(tile: TileId, current: VotingStatus, target: VotingStatus) -> VotingStatus:
    """Return ``target`` if a tile may move there from ``current``; raise otherwise.

    A move to the same status is allowed: after a crash an acknowledgement or giveup is recorded
    again.
    """
    for name, status in (("current", current), ("target", target)):
        if not isinstance(status, VotingStatus):
            raise InvalidValueError(field=name, value=status, problem="must be a VotingStatus")
    if target is current or target in VOTING_MOVES[current]:
        return target
    remedy: Remedy | str
    if current is VotingStatus.UPLOAD_GIVEUP:
        problem = "its upload attempts are used up and an operator must decide"
        remedy = Remedy.LIST_GIVEUPS
    else:
        remedy = ""
        onward = " or ".join(sorted(VOTING_MOVES[current]))
        problem = f"it can only become {onward}" if onward else "this status is final"
    raise IllegalTransitionError(
        subject=f"tile {tile}",
        transition=_VERBS[target],
        status=current.value,
        actor="tileferry",
        problem=problem,
        remedy=remedy,
    )


def should_give_up(
    upload_attempts: int, max_per_tile_attempts: int = MAX_PER_TILE_ATTEMPTS
) -> bool:
    """Return whether a tile rejected ``upload_attempts`` times has reached the limit."""
    for field, value, minimum in (
        ("upload_attempts", upload_attempts, 0),
        ("max_per_tile_attempts", max_per_tile_attempts, 1),
    ):
        if not (type(value) is int and value >= minimum):
            raise InvalidValueError(
                field=field, value=value, problem=f"must be a whole number from {minimum} up"
            )
    return upload_attempts >= max_per_tile_attempts
