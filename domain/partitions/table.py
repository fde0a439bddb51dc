"""The transitions that a partition can take. Docs and database follow this table."""

from tileferry.domain.actors import Actor
from tileferry.domain.change import Transition
from tileferry.domain.partitions.partition import PartitionStatus

_PENDING, _SUCCESS, _FAILED = (
    PartitionStatus.PENDING,
    PartitionStatus.SUCCESS,
    PartitionStatus.FAILED,
)

ENQUEUE = Transition(
    name="enqueue",
    moves=((None, _PENDING),),
    actors=(Actor.OPERATOR, Actor.SCHEDULER),
)
ACCEPT = Transition(
    name="accept",
    moves=((_PENDING, _SUCCESS), (_SUCCESS, _SUCCESS)),
    actors=(Actor.VALIDATOR,),
)
REJECT = Transition(
    name="reject",
    moves=((_PENDING, _FAILED), (_FAILED, _FAILED), (_SUCCESS, _SUCCESS)),
    actors=(Actor.VALIDATOR,),
)
REQUEUE = Transition(
    name="requeue",
    moves=((_FAILED, _PENDING),),
    actors=(Actor.OPERATOR, Actor.SCHEDULER),
    reason_from=(Actor.OPERATOR,),
)
REPROCESS = Transition(
    name="reprocess",
    moves=((_SUCCESS, _SUCCESS),),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)
ABANDON = Transition(
    name="abandon",
    moves=((_PENDING, _FAILED), (_SUCCESS, _SUCCESS)),
    actors=(Actor.SCHEDULER, Actor.WORKER),
)
MARK_TERMINAL = Transition(
    name="mark_terminal",
    moves=((_FAILED, _FAILED),),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)

PARTITION_TRANSITIONS: tuple[Transition[PartitionStatus], ...] = (
    ENQUEUE,
    ACCEPT,
    REJECT,
    REQUEUE,
    REPROCESS,
    ABANDON,
    MARK_TERMINAL,
)
