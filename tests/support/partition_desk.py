"""What happens to partitions at a desk, in the words of its actors."""

from collections.abc import Sequence
from datetime import date

from support.work_desk import AREA, LEASE, W1, Desk, acquire, key, sealed_by
from tileferry.application.control.partition_control import Override
from tileferry.domain.actors import Actor
from tileferry.domain.audit import StateChanged
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import BackfillRequest, Partition, PartitionKey
from tileferry.domain.runs import Run, RunPriority, Verdict, VerdictOutcome
from tileferry.domain.tiles import Area, SectorClass

ANN = Override(by="ann@laptop", reason="the source was mended")
WHY = "2 of 4 tiles missing"
PASSED, LOOK, FAILED = VerdictOutcome.PASSED, VerdictOutcome.NEEDS_REVIEW, VerdictOutcome.FAILED
HOPELESS = InvalidValueError(field="bbox", value=1, problem="is none")


def verdict_on(run: Run, outcome: VerdictOutcome, why: str = WHY) -> Verdict:
    """What a validator may say."""
    reasons = () if outcome is PASSED else (why,)
    return Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)


def known(desk: Desk, wanted: PartitionKey) -> Partition:
    """Look a partition up."""
    found = desk.reader.find_partition(wanted)
    assert found is not None
    return found


def enqueued(
    desk: Desk, *wanted: PartitionKey, priority: RunPriority = RunPriority.FRESH
) -> Sequence[Partition]:
    """Bring partitions into being, by default one."""
    works = [acquire(one) for one in wanted or (key(),)]
    return desk.partitions.enqueue(works, actor=Actor.SCHEDULER, priority=priority)


def claimed_of(desk: Desk, wanted: PartitionKey) -> Run:
    """Claim the run that is working on a partition, which must be next."""
    run = desk.control.get_next_run_to_process(W1, lease=LEASE)
    assert run is not None
    assert run.run_id == known(desk, wanted).active_run_id
    return run


def judged(
    desk: Desk, outcome: VerdictOutcome, wanted: PartitionKey | None = None, why: str = WHY
) -> Run:
    """Have a partition's run extract, seal and be judged."""
    of = wanted or key()
    run = claimed_of(desk, of)
    desk.control.process_result(run, verdict_on(run, outcome, why), sealed=sealed_by(run, of))
    return run


def given_up(desk: Desk, wanted: PartitionKey | None = None) -> Run:
    """Have a partition's run meet an error that no retry helps."""
    return desk.control.process_error(claimed_of(desk, wanted or key()), HOPELESS)


def made(desk: Desk, *outcomes: VerdictOutcome, wanted: PartitionKey | None = None) -> list[Run]:
    """Bring a partition into being and have it judged, again and again."""
    of = wanted or key()
    enqueued(desk, of)
    runs = []
    for number, outcome in enumerate(outcomes):
        if number:
            desk.partitions.retry([of], ANN)
        runs.append(judged(desk, outcome, of))
    return runs


def dates(first: int, last: int, **options: bool) -> BackfillRequest:
    """What an operator may ask for, in March."""
    one = key(first)
    return BackfillRequest(
        source=one.source,
        customer_id=one.customer_id,
        query_name=one.query_name,
        first_date=one.logical_date,
        last_date=date(2026, 3, last),
        area=Area(bbox=AREA, zoom_levels=(15,), sector_class=SectorClass.STABLE_REAR),
        **options,
    )


def changes_of(desk: Desk, wanted: PartitionKey | None = None) -> list[StateChanged]:
    """What the audit tells of a partition."""
    subject = f"partition {wanted or key()}"
    return [
        event
        for event in desk.events()
        if isinstance(event, StateChanged) and event.subject == subject
    ]
