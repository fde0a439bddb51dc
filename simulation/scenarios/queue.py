"""Workers share a queue of runs and partitions, while operators submit, cancel and retry."""

from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from itertools import count
from math import inf
from typing import Any, ClassVar

from attrs import define, evolve, field

from simulation.checkers.audit import AuditChecker
from simulation.checkers.clock import StopChecker
from simulation.checkers.queue import (
    LeaseChecker,
    PartitionChecker,
    QueueOrderChecker,
    StateAuditChecker,
    WorkWatcher,
)
from simulation.faults import FaultKind, PortKind
from simulation.ports import PortSpec
from simulation.provider import SOURCE, SimulatedProvider
from simulation.queue import IDLE_S, STEP_S_MAX, SimulatedJob, SimulatedWork
from simulation.scenarios.base import LOGGER, Scenario
from simulation.scenarios.cache import SimulatedDisk
from simulation.scenarios.download import GRACE_S, PROVIDER, ZOOM
from simulation.scenarios.queue_operators import DRAIN_S, QueueOperators
from simulation.scheduler import Process
from simulation.threads import (
    FetchingProvider,
    SimulatedFetchRunner,
    SimulatedHeartbeat,
    WorkerClock,
    create_pace,
)
from tileferry.adapters.memory import (
    MemoryIdempotencyStore,
    MemoryRawSink,
)
from tileferry.application import (
    DownloadSettings,
    GroupLimits,
    PartitionAcquisition,
    RawDownloaderFactory,
)
from tileferry.application.control.control_calls import RetryingCalls
from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.partition_control import PartitionControl
from tileferry.application.control.policies import WorkPolicies
from tileferry.application.control.run_control import RunControl
from tileferry.application.control.run_handlers import AcquirePartitionHandler
from tileferry.application.control.worker import RunHandler, RunResult, Worker, WorkerSettings
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.retry import PARTITION_POLICY, RUN_POLICY
from tileferry.domain.runs import (
    Run,
    RunKind,
    RunPriority,
    Verdict,
    VerdictOutcome,
    WorkerId,
    has_ended,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import Area, SectorClass, TileRange
from tileferry.domain.work import AcquirePartition, DownloadArea, UploadFlight, Work

QUEUE = PortSpec(name="queue", kind=PortKind.DATABASE, lock="work", quiet={"wait"})
STORE = PortSpec(
    name="store",
    kind=PortKind.DATABASE,
    lock="work",
    parts={"open_unit": PortSpec(name="store.unit", kind=PortKind.DATABASE)},
)
KEYS = PortSpec(name="keys", kind=PortKind.DATABASE)
WORK = PortSpec(name="work", kind=PortKind.PROVIDER)
_JOURNAL = PortSpec(
    name="raw.journal",
    kind=PortKind.DISK,
    quiet={"close"},
    fails_for_good={"append", "flush", "finish", "read_into"},
)
RAW = PortSpec(
    name="raw",
    kind=PortKind.DISK,
    parts={
        "open": PortSpec(
            name="raw.partition",
            kind=PortKind.DISK,
            parts={
                "tile_store": PortSpec(
                    name="raw.tiles", kind=PortKind.DISK, fails_for_good={"write_tiles", "flush"}
                ),
                "tile_metadata_store": PortSpec(
                    name="raw.rows", kind=PortKind.DISK, quiet={"insert_all"}
                ),
                "journals": PortSpec(
                    name="raw.journals", kind=PortKind.DISK, parts={"open": _JOURNAL}
                ),
            },
        ),
        "open_reader": PortSpec(name="raw.reader", kind=PortKind.DISK_READ),
    },
)
OTHER_SOURCE = "osm"
POLL_S = (120.0, 600.0)
LEASE_S = 20.0
POLICIES = WorkPolicies(
    run=evolve(RUN_POLICY, max_delay=600.0, max_retry_after_s=1_800.0),
    partition=evolve(PARTITION_POLICY, max_delay=1_800.0),
)
"""Waits are bounded, so that histories stay short."""


def create_area(width: int) -> Area:
    """Return an area of so many columns of one tile."""
    span = TileRange(zoom=ZOOM, x_min=9_800, x_max=9_799 + width, y_min=5_500, y_max=5_500)
    return Area(bbox=span.bounds, zoom_levels=(ZOOM,), sector_class=SectorClass.STABLE_REAR)


@define(eq=False)
class QueueScenario(Scenario):
    """The database of the control plane, the raw partitions, and everybody who uses them."""

    name: ClassVar[str] = "queue"
    liveness_s: ClassVar[float] = 3 * 86_400.0
    """The policy of a run waits up to an hour, that of a partition up to two, several times."""
    weights: ClassVar[dict[FaultKind, float]] = {FaultKind.OPERATOR: 10.0}
    early: ClassVar[float] = 3.0
    work: SimulatedWork = field(init=False)
    raw: MemoryRawSink = field(init=False)
    keys: MemoryIdempotencyStore = field(init=False)
    provider: SimulatedProvider = field(init=False)
    jobs: list[Work] = field(factory=list, init=False)
    batch: int = field(init=False)
    poll_s: float = field(init=False)
    sweep_s: float = field(init=False)
    until_idle: bool = field(init=False)
    """Whether a timer starts workers when there is work, instead of letting them wait for it."""
    leases: LeaseChecker = field(init=False)
    stops: StopChecker = field(init=False)

    def build(self) -> None:
        world, chance = self.world, self.chance
        self.work = SimulatedWork(world, self.audit_log)
        self.raw = MemoryRawSink(clock=world)
        self.keys = MemoryIdempotencyStore(clock=world)
        self.provider = SimulatedProvider(world, page_size=2)
        self.batch = chance.choice([1, 1, 2, 5])
        self.poll_s = chance.choice(POLL_S)
        self.sweep_s = self.poll_s * chance.choice([1, 4])
        self.until_idle = chance.random() < 0.6
        area = create_area(chance.randint(1, 2))
        for number in range(chance.randint(1, 2)):
            source = chance.choice([SOURCE, OTHER_SOURCE])
            self.jobs.append(DownloadArea(source=source, flight_id=f"F{number}", area=area))
        if chance.random() < 0.5:
            self.jobs.append(UploadFlight(source=SOURCE, flight_id="F0"))
        self.jobs += [
            AcquirePartition(key=create_key(day), area=area)
            for day in range(1, 1 + chance.randint(1, 2))
        ]
        tiles = list(area.coverage.tiles(SOURCE))
        if chance.random() < 0.25:  # what is missing makes the validator reject a partition
            self.provider.absent.add(chance.choice(tiles))
        self.add_checkers()
        world.disks.append(self.raw.lose_power)
        world.actions = QueueOperators(self).list_actions(tiles)
        world.start_process(Process(name="scheduler", main=self.submit_work))
        for number in range(chance.choice([1, 2, 2, 3])):
            world.start_process(
                Process(name=f"worker-{number}", main=self.run_worker, is_awaited=False)
            )

    def add_checkers(self) -> None:
        world = self.world
        self.leases = LeaseChecker(world, self.work)
        self.stops = StopChecker(world, DRAIN_S + GRACE_S + STEP_S_MAX)
        world.watch(self.stops)
        checkers = [
            self.leases,
            QueueOrderChecker(world, self.work),
            PartitionChecker(world, self.work, self.raw),
            StateAuditChecker(world, self.work, self.audit_log),
        ]
        for checker in (WorkWatcher(world, self.work, checkers), *checkers):
            world.watch(checker)
        world.watch(AuditChecker(world, self.audit_log))

    # Processes

    def submit_work(self, process: Process) -> None:
        """Submit all work, as a scheduler does, and wait until none is left to do."""
        for work in self.jobs:
            if isinstance(work, AcquirePartition):
                if self.work.find_partition(work.key) is None:
                    self.create_partitions(process).enqueue([work], actor=Actor.SCHEDULER)
            elif work not in process.data.setdefault("submitted", []):
                priority = self.chance.choice(list(RunPriority))
                self.create_control(process).submit(work, actor=Actor.OPERATOR, priority=priority)
                process.data["submitted"].append(work)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        while self.is_busy():
            self.world.wait(60.0)

    def is_busy(self) -> bool:
        """Return whether anything is still to be done without an operator."""
        books = self.work._books
        return bool(books.retries) or any(not has_ended(run) for run in books.runs.values())

    def run_worker(self, process: Process) -> None:
        """Run the command ``worker`` again and again: an operator may stop it."""
        for start in count(1):
            process.data["worker"] = WorkerId(f"{process.name}-{process.generation}-{start}")
            process.data["stopping_s"] = inf
            self.create_worker(process, process.data["worker"]).run()
            process.data["stops"] = start
            del process.data["stopping_s"]
            self.world.wait(5.0)
            if self.until_idle:
                self.work.wait_for_work(30.0 * self.world.schedule.random())

    def create_worker(self, process: Process, name: WorkerId) -> Worker:
        """Return a worker, as the container wires it."""
        clock = self.create_clock(process)
        job = self.connect(process, WORK, SimulatedJob(self.world))
        handle = partial(self.handle_run, job)
        acquire = AcquirePartitionHandler(partial(self.create_acquisition, process, clock))
        handlers: Mapping[RunKind, RunHandler] = {
            RunKind.DOWNLOAD_AREA: partial(self.watch_run, process, handle),
            RunKind.UPLOAD_FLIGHT: partial(self.watch_run, process, handle),
            RunKind.ACQUIRE_PARTITION: partial(self.watch_run, process, acquire),
        }
        retrying = RetryingCalls(self.create_retry_manager(process, clock))
        heartbeat = SimulatedHeartbeat(
            self.world, process, lambda: process.data.get("idle", False) and not worker._held._runs
        )
        process.data["heartbeat"] = heartbeat
        worker = Worker(
            name=name,
            queue=self.connect(process, QUEUE, self.work),
            control=self.create_control(process, calls=retrying),
            partitions=self.create_partitions(process, calls=retrying),
            keys=KeyExpiry(store=self.connect(process, KEYS, self.keys), calls=retrying),
            handlers=handlers,
            heartbeat=heartbeat,
            clock=clock,
            logger=LOGGER,
            settings=WorkerSettings(
                lease_s=LEASE_S,
                batch=self.batch,
                poll_s=self.poll_s,
                sweep_s=self.sweep_s,
                until_idle=self.until_idle,
            ),
            stop_check_s=IDLE_S,  # its waits end when it is stopped
            is_stopping=lambda: process.data.get("stopping_s", inf) <= self.world.time_s,
            check_stop=partial(self.check_drain, process),
        )
        return worker

    def watch_run(
        self, process: Process, handle: RunHandler, run: Run, check: Callable[[], None], /
    ) -> RunResult:
        """Process a run, and check that its worker may continue."""

        def watch() -> None:
            was_drained = self.is_drained(process)
            self.leases.check_held(run, check)
            self.stops.require(not was_drained, f"{process.name} goes on after its drain time")

        return handle(run, watch)

    def is_drained(self, process: Process) -> bool:
        """Return whether a worker has to return its run."""
        is_over: bool = process.data.get("stopping_s", inf) + DRAIN_S <= self.world.time_s
        return is_over

    def check_drain(self, process: Process) -> None:
        if self.is_drained(process):
            raise KeyboardInterrupt

    def handle_run(self, job: Any, run: Run, check: Callable[[], None], /) -> RunResult:
        """Do the steps of a run; its end depends on chance."""
        for _ in range(1 + int(3 * self.world.schedule.random())):
            check()
            job.do_step(run)
        drawn = self.world.schedule.random()
        outcome = VerdictOutcome.PASSED
        if drawn < 0.5:
            outcome = VerdictOutcome.NEEDS_REVIEW if drawn < 0.25 else VerdictOutcome.FAILED
        reasons = () if outcome is VerdictOutcome.PASSED else ("some tiles are missing",)
        return RunResult(verdict=Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons))

    def create_acquisition(self, process: Process, clock: WorkerClock) -> PartitionAcquisition:
        retry = self.create_retry_manager(process, clock)
        dates = self.create_database_clock(clock)
        return PartitionAcquisition(
            sink=self.connect(process, RAW, self.raw),
            downloaders=RawDownloaderFactory(
                provider=FetchingProvider(
                    self.world, process, self.connect(process, PROVIDER, self.provider)
                ),
                runner=SimulatedFetchRunner(self.world, process, 2),
                retry=retry,
                pace=create_pace(self.world, clock, 2),
                clock=dates,
                logger=LOGGER,
                disk=lambda _folder: SimulatedDisk(),
                free_space_reserve_bytes=0,
                settings=DownloadSettings(group=GroupLimits(tiles_max=2)),
            ),
            clock=dates,
            logger=LOGGER,
            imagery=ImageryDates(source=SOURCE, is_dated=False, allow_undated=True),
        )

    def create_control(self, process: Process, **options: Any) -> RunControl:
        return RunControl(
            queue=self.connect(process, QUEUE, self.work),
            store=self.connect(process, STORE, self.work),
            logger=LOGGER,
            new_run_id=self.new_id,
            policies=POLICIES,
            **options,
        )

    def create_partitions(self, process: Process, **options: Any) -> PartitionControl:
        return PartitionControl(
            store=self.connect(process, STORE, self.work),
            raw=self.connect(process, RAW, self.raw),
            logger=LOGGER,
            new_run_id=self.new_id,
            policies=POLICIES,
            **options,
        )


def create_key(day: int) -> PartitionKey:
    return PartitionKey(
        source=SOURCE, customer_id="acme", query_name="city", logical_date=date(2026, 10, day)
    )
