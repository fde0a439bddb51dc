"""An installation: a configuration, the parts built for it, and the use cases they offer.

Commands, workers, the demo and embedding programs use the product through this module; only its
parts, in ``installation_parts``, import the container.
"""

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from tileferry.domain.errors import TileManagerError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints.extras import require_extra
from tileferry.entrypoints.installation_parts import InstallationParts

if TYPE_CHECKING:
    from tileferry.entrypoints.metrics import Metrics

with import_on_call(globals()):
    from tileferry.adapters.filesystem import (
        FlightRecordFile,
        OperatorConfirmation,
        find_waiting,
    )
    from tileferry.adapters.filesystem.packs import LocalPackFolder
    from tileferry.adapters.http import HttpTileDownloader
    from tileferry.adapters.http.provider import ProviderProbe, probe_provider
    from tileferry.adapters.postgres import (
        PsqlCommand,
        SchemaStatus,
        ServerStatus,
        build_psql_command,
        get_schema_status,
        upgrade,
    )
    from tileferry.adapters.system import InterruptibleClock, ThreadHeartbeat
    from tileferry.adapters.system.ssh_peer import SshPeer
    from tileferry.application import CaptureIngest, RetryManager
    from tileferry.application.alerts import AlertMonitor
    from tileferry.application.archive.archive_export import ArchiveExport
    from tileferry.application.archive.archive_import import ArchiveImport
    from tileferry.application.audit_reader import AuditReader
    from tileferry.application.backups import Backups
    from tileferry.application.cache.flight_overlay import FlightOverlays
    from tileferry.application.cache.flights import FlightRegister
    from tileferry.application.cache.identity import CacheIdentity
    from tileferry.application.cache.inventory import CacheInventory, CacheStats
    from tileferry.application.cache.maintenance import CacheMaintenance
    from tileferry.application.cache.map_service import MapService
    from tileferry.application.cache.readiness import ReadinessCheck
    from tileferry.application.cache.tile_life import TileLives
    from tileferry.application.cache.verification import CacheVerification
    from tileferry.application.control.bulk_runs import BulkRuns
    from tileferry.application.control.partition_control import PartitionControl
    from tileferry.application.control.policies import WorkPolicies
    from tileferry.application.control.queries import PartitionDataReader, WorkInspector
    from tileferry.application.control.run_control import RunControl
    from tileferry.application.control.run_progress import RunProgressTracker
    from tileferry.application.control.worker import Worker
    from tileferry.application.download.area_survey import AreaSurvey
    from tileferry.application.download.survey import DownloadPlan, DurationEstimate
    from tileferry.application.packs import Packs, PushReport
    from tileferry.application.policy_tuning import PolicyHistory, PolicySimulation, TunablePolicy
    from tileferry.application.ports import (
        CacheLock,
        TileDownloader,
        TileProvider,
        TileStore,
        TileUploader,
    )
    from tileferry.application.ports.audit import OutboxStatus
    from tileferry.application.ports.inventory import TileInventory
    from tileferry.application.ports.uploads import FlightRecords
    from tileferry.application.ports.work import WorkReader
    from tileferry.application.upload.giveups import GiveupReview
    from tileferry.domain.audit import AlertChanged
    from tileferry.domain.errors import CacheLockError
    from tileferry.domain.retry import RetryPolicy
    from tileferry.domain.runs import Run, RunKind, WorkerId
    from tileferry.domain.server_settings import ServerSettings
    from tileferry.domain.state_machine import Actor
    from tileferry.domain.tiles import Area, DownloadRequest, Flight
    from tileferry.domain.tiles.selection import FetchMode
    from tileferry.domain.work import DownloadArea, UploadFlight, Work
    from tileferry.entrypoints.audit_factories import build_alert_rule, is_log_in_nats
    from tileferry.entrypoints.background_worker import BackgroundWorker
    from tileferry.entrypoints.cache_session import make_folder
    from tileferry.entrypoints.config.policies import (
        NamedPolicy,
        build_session_policy,
        list_policies,
    )
    from tileferry.entrypoints.database import build_embedded_server
    from tileferry.entrypoints.metrics_server import parse_listen, serve_metrics
    from tileferry.entrypoints.work_factories import (
        build_worker_settings,
        select_kinds,
        uses_cache,
    )


@define
class Installation(InstallationParts):
    """An open installation hands out use cases; each part is built when it is first needed.

    Use it in a ``with`` block, or between ``open`` and ``close``. Threads may share it: a part is
    built by one at a time.
    """

    _background_worker: BackgroundWorker | None = field(default=None, init=False, repr=False)

    # the database

    def upgrade_database(self) -> SchemaStatus:
        """Upgrade the schema to the revision that this version needs; repeating it is harmless."""
        return upgrade(self._opened_reading.database)

    def get_schema_status(self) -> SchemaStatus:
        """Return the current revision of the schema, and the one that this version needs."""
        return get_schema_status(self._opened_reading.database)

    def get_server_version(self) -> str:
        """Return the version of the database server; raise if it is too old."""
        return self._opened_reading.database.check_server()

    def read_server_settings(self) -> ServerSettings:
        """Return the settings of the database server that durability depends on."""
        return self._opened_reading.database.read_settings()

    def check_notifications(self) -> bool | None:
        """Return whether workers are notified of new runs through ``database_listen_url``.

        ``None`` if it is not set.
        """
        if self.config.database_listen_url is None:
            return None
        return bool(self._opened.run_queue().check_notifications())

    def find_server_status(self) -> ServerStatus | None:
        """Return the state of the embedded server, without starting it.

        ``None`` if ``database_url`` names another server.
        """
        if self.config.database_url is not None:
            return None
        return build_embedded_server(self.config).find_status()

    def start_server(self) -> ServerStatus:
        """Start the embedded server, and keep it running after this process."""
        self._require_open()
        return build_embedded_server(self.config).keep()

    def stop_server(self) -> bool:
        """Stop the embedded server; return whether it ran. Raise if any process uses it."""
        self._require_open()
        return build_embedded_server(self.config).stop()

    def get_database_time(self) -> datetime:
        """Return the time by the database's clock."""
        return self._opened_reading.database.now()

    def set_patience(self, give_up_after_s: float | None) -> None:
        """Set how long work waits for a server that is away; ``None``: ``c11.give_up_after_s``."""
        limit_s = self.config.c11.give_up_after_s if give_up_after_s is None else give_up_after_s
        self._opened_reading.database.set_patience(limit_s)

    def build_psql_command(self, *, stop_on_error: bool = False) -> PsqlCommand:
        """Return how to open psql on the configured database, while this is open."""
        return build_psql_command(self._opened_reading.database, stop_on_error=stop_on_error)

    @property
    def backups(self) -> Backups:
        """Creates, verifies and restores backups of the database, the cache and raw partitions.

        No lock is needed: a download may run while a backup is created.
        """
        return self._opened.backups()

    # transfers

    @contextmanager
    def hold_cache(
        self, *, wait_s: float = 0.0, on_wait: Callable[[CacheLockError], object] = lambda _: None
    ) -> Iterator[None]:
        """Lock the cache for a block, after checking that the database belongs to it.

        If another process holds it, wait for up to ``wait_s`` and call ``on_wait`` meanwhile.
        """
        with self._opened.cache_session().hold(wait_s=wait_s, on_wait=on_wait):
            self._deliver_left_events()
            yield

    def build_downloader(
        self, *, max_failures_share: float | None = None, mode: FetchMode | None = None
    ) -> HttpTileDownloader:
        """Return a downloader; use it while the cache is held.

        A download aborts when more than ``max_failures_share`` (0 to 1) of the tiles fail. Without
        ``mode`` it fetches missing tiles.
        """
        container = self._opened
        settings = evolve(
            container.download_settings(),
            max_failures_share=max_failures_share,
            mode=mode or FetchMode.MISSING,
        )
        return container.tile_downloader(settings=settings)

    def build_download_session(
        self,
        downloader: HttpTileDownloader,
        *,
        once: bool = False,
        give_up_after_s: float | None = None,
    ) -> TileDownloader:
        """Return a downloader that calls another one until the area is complete, or ``once``.

        It gives up when nothing improved for ``give_up_after_s`` (by default
        ``c11.give_up_after_s``). A limit on failed tiles ends it with the first error.
        """
        if once:
            return downloader
        c11 = self.config.c11
        if give_up_after_s is not None:
            c11 = evolve(c11, give_up_after_s=give_up_after_s)
        return self._opened.download_session(
            create_downloader=lambda listener: evolve(downloader, progress=listener),
            policy=build_session_policy(c11),
            ends_on_error=downloader.settings.max_failures_share is not None,
        )

    def build_uploader(self, flight_records: FlightRecords | None = None) -> TileUploader:
        """Return an uploader; use it while the cache is held."""
        return self._opened.tile_uploader(flight_records=flight_records)

    def select_flight_records(
        self, flight: str, record: Path | None, *, on_ground: bool
    ) -> FlightRecords | None:
        """Return the confirmation of the landing: from the operator, a file or the configuration.

        ``None`` selects the configuration, the default of ``build_uploader``.
        """
        if on_ground:
            now = datetime.fromtimestamp(self.clock.now(), UTC)
            return OperatorConfirmation(flight_id=flight, said_at=now)
        return None if record is None else FlightRecordFile(path=record)

    @property
    def provider(self) -> TileProvider:
        """The provider of the configured source."""
        return self._opened.provider()

    def probe_provider(self, path: str) -> ProviderProbe:
        """Call the provider once, and return what its response reveals about the server."""
        return probe_provider(self._opened.http_client(), path)

    @property
    def area_survey(self) -> AreaSurvey:
        """Summarizes what the provider has in an area, and plans downloads."""
        self._opened.provider()  # first: bad settings are reported before the database's state
        return self._checked.area_survey()

    def plan_downloads(
        self,
        requests: Sequence[DownloadRequest],
        *,
        rate_bytes_s: float | None = None,
        once: bool = False,
    ) -> tuple[list[DownloadPlan], DownloadPlan, DurationEstimate]:
        """Return what downloads for a flight would do, each and together, and how long it takes.

        With ``once``, a call that fails is not repeated.
        """
        make_folder(self.config.c11.cache_root)
        survey, flight_id = self.area_survey, requests[0].flight_id
        flight = self.flights.book.find_flight(flight_id) or Flight(flight_id=flight_id)
        return survey.plan(requests, flight=flight, rate_bytes_s=rate_bytes_s, once=once)

    # the cache

    @property
    def cache_inventory(self) -> CacheInventory:
        """Counts what the cache holds."""
        return self._checked_reading.cache_inventory

    @property
    def flights(self) -> FlightRegister:
        """Lists flights; pins, expires and removes them."""
        return self._checked_reading.flights

    def compute_cache_stats(self) -> CacheStats:
        """Return the size of the cache beside its limits; the folder is created if missing."""
        inventory = self.cache_inventory
        make_folder(self.config.c11.cache_root)
        return inventory.compute_stats()

    @property
    def tile_inventory(self) -> TileInventory:
        """Counts tiles: stored, pending, captured, given up."""
        return self._checked.metadata_store()

    @property
    def cache_verification(self) -> CacheVerification:
        """Checks every byte of the cache."""
        return self._checked.cache_verification()

    @property
    def cache_maintenance(self) -> CacheMaintenance:
        """Prunes tiles, and compacts files; use it while the cache is held."""
        return self._checked.cache_maintenance()

    @property
    def readiness(self) -> ReadinessCheck:
        """Judges whether an area is ready for a flight."""
        return self._checked.readiness()

    @property
    def map_service(self) -> MapService:
        """Reads tiles by their place; raises if the cache belongs to another installation."""
        container = self._checked
        container.cache_session().check()
        return container.map_service()

    @property
    def flight_overlays(self) -> FlightOverlays:
        """Shows on a map what a flight lacks, and what it captured."""
        return self._checked.flight_overlays()

    @property
    def tile_lives(self) -> TileLives:
        """Explains one tile; raises if the cache belongs to another installation."""
        _ = self.map_service  # checks the cache
        return self._checked.tile_lives(find_key_hash=self._find_key_hash)

    def _find_key_hash(self) -> str | None:
        try:
            return self.provider.key_hash
        except TileManagerError:  # not configured
            return None

    @property
    def archive_export(self) -> ArchiveExport:
        """Writes tiles of the cache to an archive."""
        return self._checked.cache_export()

    @property
    def packs(self) -> Packs:
        """Creates packs of a flight, and applies them; apply them while the cache is held."""
        return self._checked.packs()

    def push_flight(
        self, flight: str, destination: str, *, folder: Path, remote_command: str = "tileferry"
    ) -> PushReport:
        """Send another machine what it lacks of a flight, over ssh; ``folder`` holds the packs."""
        program = tuple(shlex.split(remote_command))
        peer = SshPeer(
            destination=destination,
            folder=folder,
            inventory_command=(*program, "pack", "inventory", "-", "--like", "-"),
            apply_command=(*program, "pack", "apply", "-", "--json"),
        )
        return self.packs.push(flight, LocalPackFolder(folder), peer)

    @property
    def archive_import(self) -> ArchiveImport:
        """Stores the tiles of an archive; use it while the cache is held."""
        return self._checked.archive_import()

    @property
    def capture_ingest(self) -> CaptureIngest:
        """Stores the tiles that a flight captured; use it while the cache is held."""
        return self._opened.capture_ingest()

    @property
    def tile_store(self) -> TileStore:
        """Reads the bytes of tiles."""
        return self._opened.tile_store()

    @property
    def cache_identity(self) -> CacheIdentity:
        """Tells whether the database belongs to this cache."""
        return self._checked.cache_identity()

    @property
    def cache_lock(self) -> CacheLock:
        """The lock that ``hold_cache`` takes."""
        return self._opened.cache_lock()

    @property
    def giveups(self) -> GiveupReview:
        """Lists tiles whose upload was given up, with instructions to reopen them."""
        return self._checked_reading.build_giveup_review(lambda: self.tile_store)

    # runs and partitions

    @property
    def run_control(self) -> RunControl:
        """Submits, cancels and retries runs."""
        return self._checked.run_control()

    @property
    def bulk_runs(self) -> BulkRuns:
        """Selects runs for an action of an operator, and applies it to them."""
        return BulkRuns(reader=self.work_reader, control=self.run_control)

    def queue_download(
        self, flight: str, area: Area, *, by: str, reason: str | None = None
    ) -> tuple[Run, bool]:
        """Queue the download of an area; return its run, and whether it is new."""
        work = DownloadArea(source=self.config.source, flight_id=flight, area=area)
        return self._queue(work, by, reason)

    def queue_upload(self, flight: str, *, by: str) -> tuple[Run, bool]:
        """Queue the upload of a flight's tiles; return its run, and whether it is new."""
        return self._queue(UploadFlight(source=self.config.source, flight_id=flight), by)

    def _queue(self, work: Work, by: str, reason: str | None = None) -> tuple[Run, bool]:
        return self.run_control.submit(work, actor=Actor.OPERATOR, by=by, reason=reason)

    @property
    def partition_control(self) -> PartitionControl:
        """Retries and retires partitions, and plans and applies backfills."""
        return self._checked.partition_control()

    @property
    def work_reader(self) -> WorkReader:
        """Lists and counts runs and partitions."""
        return self._checked_reading.work_reader

    @property
    def inspector(self) -> WorkInspector:
        """Shows a run, a partition or a source with its complete record."""
        return self._checked_reading.inspector

    @property
    def partition_data(self) -> PartitionDataReader:
        """Opens the sealed tiles of partitions."""
        return self._checked_reading.partition_data

    @property
    def work_policies(self) -> WorkPolicies:
        """The retry policies of runs and partitions, as configured."""
        return self._opened_reading.work_policies

    # audit and retries

    @property
    def policies(self) -> Mapping[str, NamedPolicy]:
        """Every retry policy by its name, as configured."""
        return list_policies(self.config)

    def tune_policies(
        self, *, since: datetime | None = None, names: Sequence[str] = ()
    ) -> Sequence[PolicyHistory]:
        """Return what the audit log says about policies, by default all, and what it proposes.

        Nothing is changed; ``policies[name].to_setting`` returns the setting of a proposed change.
        """
        known = self.policies
        policies = {
            name: TunablePolicy(policy=known[name].policy, tunable=known[name].settings)
            for name in names or known
        }
        return self._checked.policy_tuning().propose(policies, since=since)

    def simulate_policy(
        self, name: str, policy: RetryPolicy, *, since: datetime | None = None
    ) -> PolicySimulation:
        """Return what would have changed if the calls of the policy ``name`` had used ``policy``.

        Nothing is changed.
        """
        category = self.policies[name].category
        return self._checked.policy_tuning().simulate(name, category, policy, since=since)

    @property
    def audit_reader(self) -> AuditReader:
        """Reads, searches, verifies and replays the audit log."""
        reading = self._checked_reading
        observes_calls = self.config.telemetry.opentelemetry or self.metrics is not None
        if observes_calls or is_log_in_nats(self.config):
            return self._opened.audit_reader()
        return reading.build_audit_reader(lambda: self.retry_manager)

    def find_waiting_events(self) -> Sequence[OutboxStatus]:
        """Return the outboxes with audit events that their sinks have not taken yet."""
        self._require_open()
        return find_waiting(self.config.c11.cache_root)

    def list_alerts(self) -> Sequence[AlertChanged]:
        """Return the alerts on retry rates as of now."""
        if not build_alert_rule(self.config).is_active:
            return ()
        current: Sequence[AlertChanged] = self._checked.alert_monitor().list_current()
        return current

    def check_nats(self) -> str:
        """Return the address of the NATS server; raise unless it is reachable and has JetStream."""
        connection = self._opened.nats_connection()
        connection.check_jetstream()
        return str(connection.address)

    @property
    def retry_manager(self) -> RetryManager:
        """Retries with the configured policies, durable idempotency keys and the audit log."""
        return self._opened.retry_manager()

    @contextmanager
    def open_worker(
        self,
        name: WorkerId,
        *,
        until_idle: bool,
        is_stopping: Callable[[], bool],
        check_stop: Callable[[], None] = lambda: None,
        kinds: Sequence[RunKind] = (),
        listen: str | None = None,
        metrics: "Metrics | None" = None,
    ) -> Iterator[Worker]:
        """Open a worker for runs of the configured source, by default of all kinds.

        This thread must run it. It has an installation of its own, whose calls leave long waits to
        the queue. ``listen`` is an address for its metrics and health, by default
        ``telemetry.prometheus_listen``. ``metrics`` count its work instead, and nothing listens.
        """
        self._require_open()
        kinds = select_kinds(kinds)
        clock = InterruptibleClock(thread=threading.current_thread())
        listen = listen or self.config.telemetry.prometheus_listen
        address, listener = None, self.listener
        if metrics is None and listen is not None:
            address = parse_listen(listen)
            metrics = self.build_metrics(check=lambda: "it is stopping" if is_stopping() else None)
        if metrics is not None:
            listener = metrics.listen_for(listener)
        tracker = RunProgressTracker(clock=clock, listener=listener)
        own = Installation(self.config, listener=tracker, clock=clock, in_run=True, metrics=metrics)
        with own, ExitStack() as stack:
            container = own._checked  # private access within the class
            own.read_server_settings().check_writable()
            make_folder(self.config.partitions.raw_root, setting="partitions.raw_root")
            if uses_cache(kinds):
                container.cache_identity().check()
            container.provider()  # fail on a bad setting here, before it fails the runs
            if metrics is not None and address is not None:
                stack.enter_context(serve_metrics(metrics, address))
            with self._watch_alerts(container.alert_monitor(is_stopping=is_stopping)):
                yield container.worker(
                    name=name,
                    kinds=kinds,
                    settings=evolve(build_worker_settings(self.config), until_idle=until_idle),
                    is_stopping=is_stopping,
                    check_stop=check_stop,
                    tracker=tracker,
                )

    @property
    def background_worker(self) -> BackgroundWorker:
        """Processes queued downloads in a thread of this process, until this is closed."""
        self._require_open()
        with self._building:
            if self._background_worker is None:
                self._background_worker = BackgroundWorker(self)
                self._resources.callback(self._background_worker.stop)
            return self._background_worker

    def build_metrics(self, *, check: Callable[[], str | None] = lambda: None) -> "Metrics":
        """Return the metrics of this process; scrapes read the state of this installation.

        ``check`` returns why the process does not accept work, if so.
        """
        with require_extra("telemetry", needed_by="metrics"):
            from tileferry.entrypoints.metrics import Metrics  # noqa: PLC0415  # an extra
        metrics = Metrics(check=check)
        metrics.read_state(self._opened_reading.figure_reader, self.config)
        return metrics

    def _watch_alerts(self, monitor: AlertMonitor) -> AbstractContextManager[object]:
        """Evaluate alerts beside the work, in a thread of their own, if any threshold is set."""
        if not monitor.rule.is_active:
            return nullcontext()
        return ThreadHeartbeat().start(monitor.beat, every_s=self.config.worker.sweep_s)
