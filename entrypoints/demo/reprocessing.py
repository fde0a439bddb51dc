"""A few days of a query: one fails its validation, an operator has it done again, and it passes."""

from tileferry.entrypoints.demo.scenery import (
    AREA,
    DAYS,
    FAILING,
    PARTITION_ZOOM,
    QUERY,
    SECTOR,
)
from tileferry.entrypoints.demo.stage import Stage

_PLAN = "march.plan"


def a_partition(stage: Stage) -> None:
    """Plan a backfill, apply it, and mend what failed."""
    stage.begin("A partition that fails, and is done again")
    stage.say("Three days are asked for: first a plan, then exactly that.")
    first, last = DAYS
    area = ("--area", AREA, "--zoom", str(PARTITION_ZOOM), "--sector", SECTOR)
    stage.run("backfill", "plan", *QUERY, "--from", first, "--to", last, *area, "--out", _PLAN)
    stage.run("backfill", "apply", _PLAN, "--reason", "a new customer")
    stage.run("worker", "--until-idle")
    stage.say("On the first day a strip of the imagery was not there. The validator saw it.")
    stage.run("state", "inspect", *QUERY)
    stage.say("The policy would try it again later. The operator does not wait, and says why.")
    stage.run("state", "retry", FAILING, "--reason", "the mosaic is mended")
    stage.run("worker", "--until-idle")
    stage.run("state", "inspect", FAILING)
