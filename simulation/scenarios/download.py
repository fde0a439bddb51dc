"""Two flights with common tiles are downloaded into one small cache, while operators interfere."""

from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any, ClassVar

from attrs import define, field

from simulation.checkers.audit import AuditChecker, LoadChecker
from simulation.checkers.cache import DurabilityChecker, EvictionChecker, FetchChecker
from simulation.checkers.clock import StopChecker
from simulation.faults import FaultKind, PortKind
from simulation.ports import PortSpec
from simulation.provider import LATENCY_S, TILE_BYTES, SimulatedProvider
from simulation.scenarios.base import LOGGER
from simulation.scenarios.cache import (
    ABSENT,
    FLIGHTS,
    JOURNALS,
    LEDGER,
    LOCK,
    METADATA,
    NOTE,
    SPOOLS,
    STORE,
    CacheScenario,
)
from simulation.scheduler import Process
from simulation.threads import (
    FetchingProvider,
    SimulatedBackground,
    SimulatedFetchRunner,
    create_pace,
)
from simulation.world import CommandFailedError
from tileferry.adapters.memory import (
    MemoryAbsentTiles,
    MemorySpoolStore,
)
from tileferry.application import AreaDownload, DownloadSettings, GroupLimits
from tileferry.application.cache.maintenance import CacheMaintenance
from tileferry.application.download.session import PersistentTileDownloader
from tileferry.application.ports.progress import ProgressEvent, ProgressListener
from tileferry.domain.retry import RetryBudget
from tileferry.domain.tiles import (
    DownloadOutcome,
    DownloadRequest,
    NewTile,
    PruneRule,
    SectorClass,
    TileCoverage,
    TileId,
    TileRange,
)
from tileferry.domain.tiles.selection import FetchMode

PROVIDER = PortSpec(name="provider", kind=PortKind.PROVIDER)
ZOOM = 14
NEWER_MAX = 2
"""Number of tiles that get newer versions."""
GRACE_S = 10.0
"""The grace of a command after the first signal."""


class SimulatedCompaction:
    """Frees the bytes of tiles that are not visible; in memory there is nothing to free."""

    def forget_locations(self) -> None:
        """Nothing is kept."""

    def compact(self, **_options: Any) -> tuple[()]:
        return ()


@define(eq=False)
class DownloadScenario(CacheScenario):
    """The cache, its database and its users."""

    name: ClassVar[str] = "download"
    weights: ClassVar[dict[FaultKind, float]] = {FaultKind.OPERATOR: 3.0}
    provider: SimulatedProvider = field(init=False)
    absent: MemoryAbsentTiles = field(factory=MemoryAbsentTiles, init=False)
    begun: dict[tuple[str, FetchMode], dict[TileId, int]] = field(factory=dict, init=False)
    """The versions of tiles when a download began that is not complete yet."""
    fetches: FetchChecker = field(init=False)
    stops: StopChecker = field(init=False)
    workers: int = field(init=False)
    group: GroupLimits = field(init=False)
    uses_background: bool = field(init=False)

    def build(self) -> None:
        super().build()
        world, chance = self.world, self.chance
        self.provider = SimulatedProvider(
            world, page_size=chance.choice([3, 5, 100]), lists_versions=chance.random() < 0.5
        )
        self.workers = chance.randint(1, 4)
        self.group = GroupLimits(tiles_max=chance.choice([1, 2, 5, 1_024]))
        self.uses_background = chance.random() < 0.5
        if chance.random() < 0.5:
            self.retry_budget = RetryBudget(capacity=2.0, refill_per_s=0.1)
        width, height = chance.randint(2, 4), chance.randint(2, 3)
        requests = [
            create_request("F1", 9_800, 5_500, width, height),
            create_request("F2", 9_800 + chance.randint(0, width), 5_500, width, height),
        ]
        wanted = {tile for one in requests for tile in self.list_tiles(one)}
        if chance.random() < 0.3:
            self.provider.absent.add(chance.choice(sorted(wanted)))
        kept = chance.randint(0, 3)
        self.fill_cache("F0", 0, kept)
        self.fill_cache("F00", kept, chance.randint(0, NEWER_MAX + 8))
        self.pair(FLIGHTS, self.flights).pin_flight("F0", NOTE)
        # The old version of a tile is kept until the new one is stored, and a pin may protect all.
        room = len(wanted) + kept + NEWER_MAX
        self.budget_bytes = TILE_BYTES * (room + chance.randint(0, 6))
        self.add_checkers()
        self.add_actions(sorted(wanted), requests)
        for request in requests:
            world.start_process(
                Process(name=request.flight_id, main=partial(self.download, request))
            )

    def fill_cache(self, flight: str, first: int, count: int) -> None:
        """Store tiles of an earlier flight; they were used before all others."""
        store, rows = self.pair(STORE, self.store), self.pair(METADATA, self.rows)
        for number in range(first, first + count):
            tile = TileId(source="old", zoom=ZOOM, x=number, y=0)
            blob = store.write_tile(tile, bytes(TILE_BYTES))
            rows.insert_metadata(
                NewTile(
                    tile_id=tile,
                    flight_id=flight,
                    produced_at=datetime(2026, 9, 1, tzinfo=UTC),
                    resolution_m_per_px=0.6,
                    sector_class=SectorClass.STABLE_REAR,
                    blob=blob,
                )
            )
        store.flush()
        rows.flush()

    def add_checkers(self) -> None:
        world = self.world
        world.watch(DurabilityChecker(world, self.store, self.rows, self.journals))
        budget_bytes = max(self.budget_bytes, len(self.rows.all_tiles()) * TILE_BYTES)
        world.watch(
            EvictionChecker(
                world, self.rows, self.ledger, self.flights, self.journals, budget_bytes
            )
        )
        self.stops = StopChecker(world, GRACE_S)
        world.watch(self.stops)
        self.fetches = FetchChecker(world, self.store, self.rows, self.provider)
        world.watch(self.fetches)
        world.watch(AuditChecker(world, self.audit_log))
        normal_per_s = self.workers / (sum(LATENCY_S) / 2)
        world.watch(LoadChecker(world, self.retry_budget, self.workers, normal_per_s))

    def add_actions(self, tiles: list[TileId], requests: list[DownloadRequest]) -> None:
        """Add what operators and the provider may do at any moment."""
        for flight in ("F1", "F2"):
            self.world.actions |= {
                f"pin {flight} ": partial(self.change_pin, flight, "pin_flight"),
                f"unpin {flight} ": partial(self.change_pin, flight, "unpin_flight"),
                f"interrupt {flight} ": partial(self.interrupt, flight),
            }
        for request in requests:
            self.world.actions[f"refresh {request.flight_id} "] = partial(self.refresh, request)
        self.world.actions |= {
            "prune ": self.prune,
            "publish ": partial(self.publish, tiles),
        }

    def list_tiles(self, request: DownloadRequest) -> list[TileId]:
        return list(request.coverage.tiles(self.provider.source))

    # Processes

    def download(
        self, request: DownloadRequest, process: Process, *, mode: FetchMode = FetchMode.MISSING
    ) -> None:
        """Run the command ``download``, as the container wires it."""
        lock = self.acquire_lock(process, waits=mode is FetchMode.REFRESH)
        started_s = self.world.time_s
        # What an earlier command has journaled is not fetched again if this one resumes it.
        begun = self.begun.setdefault((request.flight_id, mode), dict(self.provider.versions))
        try:
            report = self.create_session(process, mode).download_tiles_for_area(request)
        except Exception as error:
            self.fetches.check_given_up(error, self.world.time_s - started_s)
            raise
        if report.outcome is not DownloadOutcome.SUCCESS and report.tiles_failed:
            raise CommandFailedError(str(report.outcome))
        shows_versions = self.provider.lists_versions or mode is FetchMode.REFRESH
        self.stops.require(
            not process.data.get("was_interrupted"), f"{process.name} went on after an interrupt"
        )
        self.fetches.check_complete(request, begun if shows_versions else {})
        del self.begun[request.flight_id, mode]
        lock.release()

    def create_session(self, process: Process, mode: FetchMode) -> PersistentTileDownloader:
        clock = self.create_clock(process)
        retry = self.create_retry_manager(process, clock)
        pace = create_pace(self.world, clock, self.workers)
        journals = self.connect(process, JOURNALS, self.journals)
        metadata = self.connect_metadata(process, clock)
        dates = self.create_database_clock(clock)
        background = SimulatedBackground(self.world, process) if self.uses_background else None

        def create_downloader(progress: ProgressListener) -> AreaDownload:
            return AreaDownload(
                provider=FetchingProvider(
                    self.world, process, self.connect(process, PROVIDER, self.provider)
                ),
                tile_store=self.connect(process, STORE, self.store),
                tile_metadata_store=metadata,
                budget_enforcer=self.create_budget(process, journals),
                journals=journals,
                spools=self.connect(process, SPOOLS, MemorySpoolStore()),
                runner=SimulatedFetchRunner(self.world, process, self.workers),
                lock=self.connect(process, LOCK, process.data["lock"]),
                retry=retry,
                pace=pace,
                clock=dates,
                logger=LOGGER,
                settings=DownloadSettings(group=self.group, mode=mode),
                background=background,
                progress=progress,
                flights=self.connect(process, FLIGHTS, self.flights),
                absent_tiles=self.connect(process, ABSENT, self.absent),
            )

        return PersistentTileDownloader(
            create_downloader=create_downloader,
            retry=retry,
            clock=clock,
            progress=partial(_stop_if_interrupted, process),
        )

    # Operators

    def change_pin(self, flight: str, change: str, process: Process) -> None:
        getattr(self.connect(process, FLIGHTS, self.flights), change)(flight, NOTE)

    def publish(self, tiles: list[TileId], _process: Process) -> None:
        """Let the provider have a newer version of a tile."""
        known = self.provider.versions
        if len(known) >= NEWER_MAX:
            tiles = [tile for tile in tiles if tile in known]
        if tiles:
            self.provider.publish(tiles[int(self.world.schedule.random() * len(tiles))])

    def refresh(self, request: DownloadRequest, process: Process) -> None:
        """Run ``download --refresh`` because there is a newer picture."""
        self.publish(self.list_tiles(request), process)
        self.download(request, process, mode=FetchMode.REFRESH)

    def interrupt(self, flight: str, _process: Process) -> None:
        """Press Ctrl-C in the terminal of a download; its clock ends a sleep."""
        process = self.world.processes[flight]
        if not process.alive:
            return
        self.stops.note_signal(process, lambda: len(process.failures))
        main = process.tasks[0]
        if process.data.get(f"sleeping {main.name}"):
            self.world.wake(main, KeyboardInterrupt())
        else:
            process.data["interrupted"] = True

    def prune(self, process: Process) -> None:
        """Remove tiles that no flight needs."""
        lock = self.acquire_lock(process, waits=True)
        journals = self.connect(process, JOURNALS, self.journals)
        unused_since = datetime.fromtimestamp(self.world.now(), UTC)
        CacheMaintenance(
            ledger=self.connect(process, LEDGER, self.ledger),
            lock=lock,
            store=SimulatedCompaction,
            before_removal=journals.discard_complete,
        ).prune(PruneRule(unowned=True, unused_since=unused_since), confirmed=None)


def create_request(flight: str, x: int, y: int, width: int, height: int) -> DownloadRequest:
    """Return a request for so many columns and rows of tiles."""
    span = TileRange(zoom=ZOOM, x_min=x, x_max=x + width - 1, y_min=y, y_max=y + height - 1)
    request = DownloadRequest(
        flight_id=flight,
        bbox=span.bounds,
        zoom_levels=(ZOOM,),
        sector_class=SectorClass.STABLE_REAR,
        cache_root=PurePosixPath("/cache"),
    )
    assert TileCoverage(bbox=span.bounds, zoom_levels=[ZOOM]).count == width * height
    return request


def _stop_if_interrupted(process: Process, _event: ProgressEvent, /) -> None:
    if process.data.pop("interrupted", False):
        process.data["was_interrupted"] = True
        raise KeyboardInterrupt
