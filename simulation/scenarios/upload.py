"""The captures of a flight are ingested and uploaded to a provider that rejects some of them."""

from functools import partial
from typing import ClassVar

from attrs import define, field

from simulation.checkers.audit import AuditChecker
from simulation.checkers.cache import DurabilityChecker
from simulation.checkers.uploads import AttemptChecker, UploadChecker
from simulation.faults import FaultKind, PortKind
from simulation.ports import PortSpec
from simulation.scenarios.base import LOGGER
from simulation.scenarios.cache import FLIGHTS, JOURNALS, STORE, CacheScenario
from simulation.scheduler import Process
from simulation.threads import SimulatedBackground
from simulation.uploads import (
    SimulatedAircraft,
    SimulatedCaptures,
    SimulatedKeys,
    SimulatedUploadProvider,
)
from simulation.world import CommandFailedError
from tileferry.adapters.memory import MemoryEnvelopeStore, MemoryFdrClient
from tileferry.application import (
    C11RetryConfig,
    CaptureIngest,
    FlightUpload,
    GroupLimits,
    IdempotentRetryTileUploader,
    UploadSettings,
)
from tileferry.domain.tiles import TileId, UploadRequest, VotingStatus, build_capture_source

FLIGHT = "F1"
PROVIDER = PortSpec(name="provider", kind=PortKind.PROVIDER, quiet={"iter_body"})
ENVELOPES = PortSpec(name="envelopes", kind=PortKind.DATABASE)
CAPTURES = PortSpec(name="captures", kind=PortKind.DISK_READ)
AIRCRAFT = PortSpec(name="flight_records", kind=PortKind.DISK_READ)
KEYS = PortSpec(name="keys", kind=PortKind.LOCAL)
RECORDER = PortSpec(name="recorder", kind=PortKind.DISK)


@define(eq=False)
class UploadScenario(CacheScenario):
    """One flight, its captures and the provider they go to."""

    name: ClassVar[str] = "upload"
    liveness_s: ClassVar[float] = 3 * 3600.0
    lasts_s_max: ClassVar[float] = 600.0
    weights: ClassVar[dict[FaultKind, float]] = {FaultKind.OPERATOR: 4.0}
    provider: SimulatedUploadProvider = field(init=False)
    envelopes: MemoryEnvelopeStore = field(init=False)
    recorder: MemoryFdrClient = field(init=False)
    captures: SimulatedCaptures = field(init=False)
    aircraft: SimulatedAircraft = field(init=False)
    keys: SimulatedKeys = field(factory=SimulatedKeys, init=False)
    attempts: AttemptChecker = field(init=False)
    config: C11RetryConfig = field(init=False)
    settings: UploadSettings = field(init=False)
    group: GroupLimits = field(init=False)
    uses_background: bool = field(init=False)

    def build(self) -> None:
        super().build()
        world, chance = self.world, self.chance
        self.envelopes = MemoryEnvelopeStore(self.rows)
        source = build_capture_source(FLIGHT)
        tiles = [
            TileId(source=source, zoom=16, x=39_000 + number % 3, y=22_000 + number // 3)
            for number in range(chance.randint(1, 8))
        ]
        attempts_max = chance.choice([1, 1, 2, 3, 5])
        self.config = C11RetryConfig(
            max_per_tile_attempts=attempts_max, max_in_call_retries=chance.randint(0, 3)
        )
        self.settings = UploadSettings(
            batch_tiles_max=chance.randint(1, 4), attempts_max=attempts_max
        )
        self.group = GroupLimits(tiles_max=chance.choice([1, 3, 1_024]))
        self.uses_background = chance.random() < 0.5
        self.captures = SimulatedCaptures(tiles)
        self.aircraft = SimulatedAircraft(world, FLIGHT, chance.choice([0.0, 30.0]))
        self.recorder = MemoryFdrClient(clock=world)
        stubborn = {tile: chance.choice([1, 2, attempts_max, 99]) for tile in tiles}
        self.provider = SimulatedUploadProvider(
            world, stubborn={tile: n for tile, n in stubborn.items() if chance.random() < 0.4}
        )
        world.disks.append(self.recorder.lose_power)
        world.watch(DurabilityChecker(world, self.store, self.rows, self.journals))
        world.watch(AuditChecker(world, self.audit_log))
        world.watch(
            UploadChecker(
                world, self.provider, self.rows, self.envelopes, self.aircraft.is_on_ground
            )
        )
        self.attempts = AttemptChecker(
            world,
            self.provider,
            self.rows,
            self.store,
            self.recorder,
            self.audit_log,
            attempts_max,
        )
        world.watch(self.attempts)
        for tile in tiles[:2]:
            world.actions[f"capture again {tile} "] = partial(self.capture_again, tile)
        world.actions["start another upload "] = self.upload
        world.start_process(Process(name="ingest", main=self.ingest))
        world.start_process(Process(name="upload", main=self.upload))

    # Processes

    def ingest(self, process: Process) -> None:
        """Run the command ``ingest``."""
        lock = self.acquire_lock(process, waits=process.name != "ingest")
        clock = self.create_clock(process)
        journals = self.connect(process, JOURNALS, self.journals)
        report = CaptureIngest(
            tile_store=self.connect(process, STORE, self.store),
            tile_metadata_store=self.connect_metadata(process, clock),
            budget_enforcer=self.create_budget(process, journals),
            lock=lock,
            clock=self.create_database_clock(clock),
            logger=LOGGER,
            group=self.group,
            flights=self.connect(process, FLIGHTS, self.flights),
        ).ingest(FLIGHT, self.connect(process, CAPTURES, self.captures))
        lock.release()
        if report.files_refused and not self.attempts.replaced:
            raise CommandFailedError(str(report.refused))

    def upload(self, process: Process) -> None:
        """Run the command ``upload`` until nothing is left to do."""
        lock = self.acquire_lock(process)
        clock = self.create_clock(process)
        retry = self.create_retry_manager(process, clock)
        metadata = self.connect_metadata(process, clock)
        background = SimulatedBackground(self.world, process) if self.uses_background else None
        plain = FlightUpload(
            provider=self.connect(process, PROVIDER, self.provider),
            tile_store=self.connect(process, STORE, self.store),
            tile_metadata_store=metadata,
            envelopes=self.connect(process, ENVELOPES, self.envelopes),
            flight_records=self.connect(process, AIRCRAFT, self.aircraft),
            keys=self.connect(process, KEYS, self.keys),
            lock=lock,
            retry=retry,
            clock=clock,
            logger=LOGGER,
            settings=self.settings,
            background=background,
        )
        IdempotentRetryTileUploader(
            inner=plain,
            tile_metadata_store=metadata,
            fdr_client=self.connect(process, RECORDER, self.recorder),
            logger=LOGGER,
            clock=clock,
            config=self.config,
            audit=retry.audit,
            on_counted=plain.close_counted,
            count_giveups=lambda flight: metadata.count_captured(flight).get(
                VotingStatus.UPLOAD_GIVEUP, 0
            ),
        ).upload_pending_tiles(UploadRequest(flight_id=FLIGHT))
        lock.release()
        if process.restarts and (self.rows.count_pending(FLIGHT) or self.is_ingesting()):
            raise CommandFailedError("tiles are left")

    def is_ingesting(self) -> bool:
        return any(
            not one.done for one in self.world.processes.values() if one.name.startswith("ingest")
        )

    # Operators

    def capture_again(self, tile: TileId, _process: Process) -> None:
        """Fly once more: a later capture is ingested, maybe while an upload is under way."""
        self.captures.capture_again(tile)
        self.attempts.replaced.add(tile)
        name = f"ingest-{self.captures.versions[tile]}-{tile.x}-{tile.y}"
        self.world.start_process(Process(name=name, main=self.ingest))
        upload = self.world.processes["upload"]
        if upload.done:
            upload.done = False
            self.world.start_process(upload)
