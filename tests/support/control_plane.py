"""The control plane's books in both forms, with time that a test can let pass."""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count

from attrs import define, field, frozen
from sqlalchemy import text

from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryWork
from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresRunQueue,
    PostgresWorkReader,
    PostgresWorkStore,
)
from tileferry.application.control.partition_control import OperatorOverride, PartitionControl
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.run_control import RunControl
from tileferry.application.ports.work import RunFilter, RunQueue, WorkReader, WorkStore
from tileferry.domain.audit import AuditEvent, StateChanged, event_from_bytes
from tileferry.domain.errors import InvalidValueError, RateLimitedError, SatelliteProviderError
from tileferry.domain.partitions import BackfillRequest, Partition, PartitionKey
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    QUEUE_BUDGET,
    Run,
    RunId,
    RunPriority,
    Verdict,
    VerdictOutcome,
    WorkerId,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import Area, BBox, SectorClass
from tileferry.domain.tiles.provider_faults import ProviderFault
from tileferry.domain.work import AcquirePartition, DownloadArea, UploadFlight, Work

LEASE = timedelta(seconds=60)
W1, W2 = WorkerId("w1"), WorkerId("w2")
AREA = BBox(west=2.0, south=48.0, east=2.1, north=48.1)
_TIMES = {
    "runs": ("submitted_date", "next_retry_at", "lease_expires_at", "began_at", "ended_at"),
    "run_attempts": ("began_at", "ended_at"),
    "source_gates": ("closed_until", "refilled_at"),
    "partition_retries": ("next_run_at",),
}


@frozen
class RecordedRuns:
    """A sink that has exactly what the books say was sealed."""

    reader: WorkReader

    def find_newest(self, key: PartitionKey) -> SealedPartition | None:
        for run in self.reader.list_runs(RunFilter(), limit=10_000):
            sealed = self.reader.find_raw(run.run_id)
            if sealed is not None and sealed.key == key:
                return sealed
        return None


@define(kw_only=True)
class ControlPlane:
    """Where a test sits: it submits, claims, lets time pass and looks."""

    queue: RunQueue
    store: WorkStore
    reader: WorkReader
    pass_time: Callable[[float], None]
    events: Callable[[], Sequence[AuditEvent]]
    policies: WorkPolicies = field(factory=WorkPolicies)
    name_run: Callable[[int], str] = "run-{:06}".format
    """Returns the id of the n-th run."""
    _numbers: Iterator[int] = field(factory=count, init=False)

    @property
    def control(self) -> RunControl:
        """The use cases of runs."""
        return RunControl(
            queue=self.queue,
            store=self.store,
            logger=logging.getLogger("test.runs"),
            new_run_id=self.new_run_id,
            policies=self.policies,
        )

    @property
    def partitions(self) -> PartitionControl:
        """The use cases of partitions."""
        return PartitionControl(
            store=self.store,
            raw=RecordedRuns(self.reader),
            logger=logging.getLogger("test.partitions"),
            new_run_id=self.new_run_id,
            policies=self.policies,
        )

    def new_run_id(self) -> str:
        """Return a name that sorts by when it was given, unless ``name_run`` is another."""
        return self.name_run(next(self._numbers))

    def submit_run(
        self, work: Work | None = None, *, priority: RunPriority = RunPriority.FRESH
    ) -> Run:
        """Submit something, by default work that nobody has asked for yet."""
        wanted = work or download_work(f"F{next(self._numbers)}")
        run, _ = self.control.submit(wanted, actor=Actor.OPERATOR, priority=priority)
        return run

    def claim_run(self, worker: WorkerId = W1, **options: object) -> Run:
        """Claim the one run that is next."""
        run = self.control.get_next_run_to_process(worker, lease=LEASE, **options)  # type: ignore[arg-type]
        assert run is not None
        return run

    def get_run(self, run: Run) -> Run:
        """Look a run up."""
        found = self.reader.find_run(run.run_id)
        assert found is not None
        return found


_WORK_AREA = Area(bbox=AREA, zoom_levels=(15,), sector_class=SectorClass.STABLE_REAR)


def download_work(flight_id: str, source: str = "osm") -> DownloadArea:
    """Work that downloads."""
    return DownloadArea(
        source=source,
        flight_id=flight_id,
        area=_WORK_AREA,
    )


def upload_work(flight_id: str, source: str = "osm") -> UploadFlight:
    """Work that uploads."""
    return UploadFlight(source=source, flight_id=flight_id)


def partition_key(
    day: int = 1, *, month: int = 3, source: str = "osm", query: str = "city"
) -> PartitionKey:
    """A partition's name."""
    return PartitionKey(
        source=source, customer_id="acme", query_name=query, logical_date=date(2026, month, day)
    )


def acquire_work(wanted: PartitionKey) -> AcquirePartition:
    """Work that acquires a partition."""
    return AcquirePartition(key=wanted, area=_WORK_AREA)


def create_sealed(run: Run | RunId, wanted: PartitionKey) -> SealedPartition:
    """What a run may have sealed."""
    return SealedPartition(
        key=wanted,
        run_id=run.run_id if isinstance(run, Run) else run,
        tiles=4,
        size_bytes=80_000,
        manifest_sha256="ab" * 32,
        sealed_at=datetime(2026, 3, 2, tzinfo=UTC),
    )


def create_memory_control_plane(
    *, policies: WorkPolicies | None = None, budget: RetryBudget = QUEUE_BUDGET
) -> ControlPlane:
    """Sit at books in memory."""
    clock, sink = ManualClock(), MemoryAuditSink()
    work = MemoryWork(clock=clock, audit_sink=sink, budget=budget)
    return ControlPlane(
        queue=work,
        store=work,
        reader=work,
        pass_time=clock.advance,
        events=lambda: sink.events,
        policies=policies or WorkPolicies(),
    )


def create_postgres_control_plane(
    database: Database,
    *,
    policies: WorkPolicies | None = None,
    budget: RetryBudget = QUEUE_BUDGET,
) -> ControlPlane:
    """Sit at books in Postgres. Time passes there by having everything happen earlier."""
    log = PostgresAuditLog(database=database)
    return ControlPlane(
        queue=PostgresRunQueue(database=database, budget=budget),
        store=PostgresWorkStore(database=database, budget=budget),
        reader=PostgresWorkReader(database=database, budget=budget),
        pass_time=lambda seconds: _shift_times_back(database, seconds),
        events=lambda: [event_from_bytes(entry.body) for entry in log.iter_entries()],
        policies=policies or WorkPolicies(),
    )


def _shift_times_back(database: Database, seconds: float) -> None:
    with database.transaction() as connection:
        for table, columns in _TIMES.items():
            moved = ", ".join(f"{name} = {name} - make_interval(secs => :s)" for name in columns)
            connection.execute(text(f"UPDATE {table} SET {moved}"), {"s": seconds})  # noqa: S608  # names of ours
        # The times of partitions are kept from going back.
        connection.execute(text("ALTER TABLE partitions DISABLE TRIGGER USER"))
        connection.execute(
            text(
                "UPDATE partitions SET created_at = created_at - make_interval(secs => :s),"
                " updated_at = updated_at - make_interval(secs => :s)"
            ),
            {"s": seconds},
        )
        connection.execute(text("ALTER TABLE partitions ENABLE TRIGGER USER"))


def unreachable_error(reason: str = "connection reset") -> SatelliteProviderError:
    """What may pass."""
    return SatelliteProviderError(reason=reason, fault=ProviderFault.UNREACHABLE)


def rate_limited_error(retry_after_s: float | None) -> RateLimitedError:
    """What passes when the source says."""
    return RateLimitedError(url="https://tiles", attempts=2, retry_after_s=retry_after_s)


def claim_all_due(control_plane: ControlPlane) -> list[Run]:
    """Claim until nothing is due."""
    claimed: list[Run] = []
    while batch := control_plane.queue.claim(W1, limit=9, lease=LEASE):
        claimed += batch
    return claimed


OVERRIDE = OperatorOverride(by="ann@laptop", reason="the source was mended")
REJECTION_REASON = "2 of 4 tiles missing"
PASSED, NEEDS_REVIEW, FAILED = (
    VerdictOutcome.PASSED,
    VerdictOutcome.NEEDS_REVIEW,
    VerdictOutcome.FAILED,
)
FINAL_ERROR = InvalidValueError(field="bbox", value=1, problem="is none")


def create_verdict(run: Run, outcome: VerdictOutcome, why: str = REJECTION_REASON) -> Verdict:
    """What a validator may say."""
    reasons = () if outcome is PASSED else (why,)
    return Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)


def get_partition(control_plane: ControlPlane, wanted: PartitionKey) -> Partition:
    """Look a partition up."""
    found = control_plane.reader.find_partition(wanted)
    assert found is not None
    return found


def enqueue_partitions(
    control_plane: ControlPlane, *wanted: PartitionKey, priority: RunPriority = RunPriority.FRESH
) -> Sequence[Partition]:
    """Bring partitions into being, by default one."""
    works = [acquire_work(one) for one in wanted or (partition_key(),)]
    return control_plane.partitions.enqueue(works, actor=Actor.SCHEDULER, priority=priority)


def claim_partition_run(control_plane: ControlPlane, wanted: PartitionKey) -> Run:
    """Claim the run that is working on a partition, which must be next."""
    run = control_plane.control.get_next_run_to_process(W1, lease=LEASE)
    assert run is not None
    assert run.run_id == get_partition(control_plane, wanted).active_run_id
    return run


def judge_partition(
    control_plane: ControlPlane,
    outcome: VerdictOutcome,
    wanted: PartitionKey | None = None,
    why: str = REJECTION_REASON,
) -> Run:
    """Have a partition's run extract, seal and be judged."""
    of = wanted or partition_key()
    run = claim_partition_run(control_plane, of)
    control_plane.control.process_result(
        run, create_verdict(run, outcome, why), sealed=create_sealed(run, of)
    )
    return run


def give_up_partition(control_plane: ControlPlane, wanted: PartitionKey | None = None) -> Run:
    """Have a partition's run meet an error that no retry helps."""
    return control_plane.control.process_error(
        claim_partition_run(control_plane, wanted or partition_key()), FINAL_ERROR
    )


def create_judged_partition(
    control_plane: ControlPlane, *outcomes: VerdictOutcome, wanted: PartitionKey | None = None
) -> list[Run]:
    """Bring a partition into being and have it judged, again and again."""
    of = wanted or partition_key()
    enqueue_partitions(control_plane, of)
    runs = []
    for number, outcome in enumerate(outcomes):
        if number:
            control_plane.partitions.retry([of], OVERRIDE)
        runs.append(judge_partition(control_plane, outcome, of))
    return runs


def create_backfill_request(first: int, last: int, **options: bool) -> BackfillRequest:
    """What an operator may ask for, in March."""
    one = partition_key(first)
    return BackfillRequest(
        source=one.source,
        customer_id=one.customer_id,
        query_name=one.query_name,
        first_date=one.logical_date,
        last_date=date(2026, 3, last),
        area=_WORK_AREA,
        **options,
    )


def list_state_changes(
    control_plane: ControlPlane, wanted: PartitionKey | None = None
) -> list[StateChanged]:
    """What the audit tells of a partition."""
    subject = f"partition {wanted or partition_key()}"
    return [
        event
        for event in control_plane.events()
        if isinstance(event, StateChanged) and event.subject == subject
    ]
