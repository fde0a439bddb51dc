"""The transitions that a run can take. Docs and database follow this table."""

from tileferry.domain.actors import Actor
from tileferry.domain.change import Transition
from tileferry.domain.runs.run import RunStatus

SUBMIT = Transition(
    name="submit",
    moves=((None, RunStatus.DISCOVERED),),
    actors=(Actor.OPERATOR, Actor.SCHEDULER),
)
CLAIM = Transition(
    name="claim",
    moves=(
        (RunStatus.DISCOVERED, RunStatus.PROCESSING),
        (RunStatus.ERROR, RunStatus.PROCESSING),
    ),
    actors=(Actor.WORKER,),
)
RENEW = Transition(
    name="renew",
    moves=((RunStatus.PROCESSING, RunStatus.PROCESSING),),
    actors=(Actor.WORKER,),
)
COMPLETE = Transition(
    name="complete",
    moves=(
        (RunStatus.PROCESSING, RunStatus.PASSED),
        (RunStatus.PROCESSING, RunStatus.NEEDS_REVIEW),
        (RunStatus.PROCESSING, RunStatus.FAILED),
    ),
    actors=(Actor.WORKER,),
)
RECORD_ERROR = Transition(
    name="record_error",
    moves=((RunStatus.PROCESSING, RunStatus.ERROR),),
    actors=(Actor.WORKER,),
)
RESCUE = Transition(
    name="rescue",
    moves=((RunStatus.PROCESSING, RunStatus.ERROR),),
    actors=(Actor.SWEEPER,),
)
RELEASE = Transition(
    name="release",
    moves=((RunStatus.PROCESSING, RunStatus.ERROR),),
    actors=(Actor.WORKER,),
)
CANCEL = Transition(
    name="cancel",
    moves=(
        (RunStatus.DISCOVERED, RunStatus.ERROR),
        (RunStatus.ERROR, RunStatus.ERROR),
    ),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)
RETRY_NOW = Transition(
    name="retry_now",
    moves=((RunStatus.ERROR, RunStatus.ERROR),),
    actors=(Actor.OPERATOR,),
    reason_from=(Actor.OPERATOR,),
)

RUN_TRANSITIONS: tuple[Transition[RunStatus], ...] = (
    SUBMIT,
    CLAIM,
    RENEW,
    COMPLETE,
    RECORD_ERROR,
    RESCUE,
    RELEASE,
    CANCEL,
    RETRY_NOW,
)
