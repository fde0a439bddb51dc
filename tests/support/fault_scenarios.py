"""What commands do while one of their file calls fails, and what must hold afterwards."""

import json
import logging
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path

import psycopg
from attrs import define, frozen
from sqlalchemy import text
from sqlalchemy.engine import make_url

from support.cache_upload_env import write_captures
from support.call_faults import NO_FAULT, CallFault, FaultServer, FaultyRun
from support.control_plane import create_postgres_control_plane
from support.operator import create_user_folders
from support.provider import API_KEY, RunningProvider
from support.segments import list_damages
from tileferry.adapters.filesystem import FileFdrClient, FileJournalStore, SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.adapters.system import SystemClock
from tileferry.application.ports.fdr import GIVEUP_KIND
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import BBox, SectorClass, TileId, TileSet, build_capture_source
from tileferry.domain.tiles.area import Area
from tileferry.domain.work import AcquirePartition, DownloadArea, UploadFlight

AREA = Area(
    bbox=BBox.parse("36.20,50.00,36.22,50.02"),
    zoom_levels=[15],
    sector_class=SectorClass.STABLE_REAR,
)
TILES = [*AREA.coverage.tiles("satellite")]
DOWNLOAD = (
    *("download", "--bbox", str(AREA.bbox), "--zoom", "15"),
    *("--flight", "F1", "--sector", "stable_rear"),
)
INGEST = ("ingest", "--flight", "F2", "card")
CAPTURES = 3
POISONED = f"{build_capture_source('F2')}/16/39001/22000"
ATTEMPTS_MAX = 2
PARTITION = PartitionKey(
    source="satellite", customer_id="acme", query_name="derkachi", logical_date=date(2026, 10, 1)
)
DOCUMENTED_CODES = {0, 3, 4, 5, 7}
FAULTS_MAX = 2_000
PROBLEMS_MAX = 5
_HOUR_S = 3_600.0
_LOGGER = logging.getLogger("test.faults")


@define(eq=False)
class FaultyInstallation:
    """A home and a database that can be put back to a saved state, and commands with faults."""

    server: FaultServer
    provider: RunningProvider
    postgres_url: str
    home: Path
    name: str
    """Of the database."""

    @property
    def database_url(self) -> str:
        url = make_url(self.postgres_url).set(database=self.name)
        return url.render_as_string(hide_password=False)

    @property
    def cache_root(self) -> Path:
        return self.home / "cache"

    @property
    def _saved(self) -> Path:
        return self.home.with_name(f"{self.home.name}-saved")

    def run(
        self, *arguments: str, fault: CallFault = NO_FAULT, database_url: str | None = None
    ) -> FaultyRun:
        environment = {
            **create_user_folders(self.home),
            "TILEFERRY_DATABASE_URL": database_url or self.database_url,
            "TILEFERRY_C11_SATELLITE_PROVIDER_URL": self.provider.url,
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_C11_CACHE_ROOT": str(self.cache_root),
            "TILEFERRY_C11_BACKOFF_BASE_S": "0",
            "TILEFERRY_C11_MAX_PER_TILE_ATTEMPTS": str(ATTEMPTS_MAX),
            "TILEFERRY_C11_UPLOAD_BATCH_TILES": "2",
            "TILEFERRY_C11_FLIGHT_RECORD_FILE": str(self.home / "record.json"),
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(self.home / "raw"),
            "TILEFERRY_WORKER_IDLE_PATIENCE_S": "0.1",
            "TILEFERRY_WORKER_POLL_S": "0.05",
            "TILEFERRY_LOG_FILE": str(self.home / "log" / "tileferry.jsonl"),
        }
        return self.server.run(*arguments, home=self.home, environment=environment, fault=fault)

    def create(self) -> None:
        """Make an empty home, and a database with the schema."""
        self.home.mkdir(mode=0o700)
        self._execute(f"CREATE DATABASE {self.name} TEMPLATE tileferry_template STRATEGY file_copy")

    def save(self) -> None:
        """Keep the state of now, to come back to."""
        shutil.copytree(self.home, self._saved)
        self._execute(f"ALTER DATABASE {self.name} RENAME TO {self.name}_saved")

    def restore(self) -> None:
        """Go back to the saved state, of the provider too."""
        self.provider.reset()
        self.provider.set_faults({"fault": "poison", "tile": POISONED})
        shutil.rmtree(self.home)
        shutil.copytree(self._saved, self.home)
        self._execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        self._execute(f"CREATE DATABASE {self.name} TEMPLATE {self.name}_saved STRATEGY file_copy")

    def drop(self) -> None:
        for name in (self.name, f"{self.name}_saved"):
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextmanager
    def open_database(self) -> Iterator[Database]:
        with closing(Database.from_url(self.database_url)) as database:
            yield database

    def fetch_rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(query.encode()).fetchall()

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.postgres_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def check_cache(self) -> None:
        """Invariants 1 and 6: what is journaled has a row, and each row has its bytes."""
        if not self.cache_root.exists():
            return
        with self.open_database() as database:
            with database.read_connection() as connection:
                found = connection.execute(text("SELECT source, zoom, x, y FROM tiles"))
                rows = {TileId(source=r.source, zoom=r.zoom, x=r.x, y=r.y) for r in found}
            with SegmentTileStore(root=self.cache_root, index=PostgresBlobIndex(database)) as store:
                assert list_damages(store.verify()) == []
        folder = self.cache_root / ".c11" / "journal"
        journals = FileJournalStore(root=self.cache_root, logger=_LOGGER)
        for path in folder.glob("*.json"):
            done = TileSet(AREA.coverage)
            with closing(journals.open(path.name)) as journal:
                journal.read_into(done)
                complete = journal.complete
            journaled = {tile for tile in TILES if complete or tile in done}
            assert journaled <= rows, f"{path.name}: journaled without a row"

    def check_uploads(self, *, complete: bool) -> None:
        """Invariants 7 and 9: each tile accepted once, each rejection counted once."""
        counted: dict[str, int] = {}
        for tile, status, attempts in self.fetch_rows(
            "SELECT concat_ws('/', source, zoom, x, y), voting_status, upload_attempts FROM tiles"
        ):
            counted[str(tile)] = int(str(attempts))
            if tile == POISONED:
                assert status in {"pending", "upload_giveup"}
                assert (status == "upload_giveup") <= (attempts == ATTEMPTS_MAX)
                assert (status == "upload_giveup") <= (tile in self._list_recorded_giveups())
        accepted = Counter(
            line.tile_id for line in self.provider.uploads if line.status == "accepted"
        )
        assert set(accepted.values()) <= {1}
        rejections: dict[str, set[str]] = defaultdict(set)
        for line in self.provider.uploads:
            if line.status == "rejected":
                rejections[line.tile_id].add(line.idempotency_key)
        for tile, attempts in counted.items():
            known = len(rejections[tile])  # the last one may be counted by the next command
            assert attempts in {known, known if complete else known - 1}, (tile, attempts, known)

    def check_runs(self) -> None:
        """Invariants 9 and 12: attempts are counted exactly, under one lease after the other."""
        query = (
            "SELECT r.run_id, r.status, r.retry_count, r.rescues, r.lease_epoch,"
            " (SELECT count(*) FROM run_attempts a WHERE a.run_id = r.run_id),"
            " (SELECT count(*) FROM run_attempts a WHERE a.run_id = r.run_id AND outcome = 'error')"
            " FROM runs r"
        )
        for run_id, status, retries, rescues, epoch, attempts, errors in self.fetch_rows(query):
            assert rescues == 0, f"run {run_id} was left by a worker"
            assert status != "processing", f"run {run_id} is still claimed"
            ended = status in {"passed", "needs_review", "failed"}  # which resets the count
            assert retries == (0 if ended else errors), run_id
            assert epoch == int(str(attempts)) + ended, run_id

    def pass_time(self) -> None:
        """Let every retry be due."""
        with self.open_database() as database:
            create_postgres_control_plane(database).pass_time(_HOUR_S)

    def _list_recorded_giveups(self) -> set[str]:
        recorder = FileFdrClient(root=self.cache_root, clock=SystemClock())
        with closing(recorder):
            return {str(r.payload["tile_id"]) for r in recorder.records() if r.kind == GIVEUP_KIND}

    def get_statuses(self) -> Counter[str]:
        found = self.fetch_rows("SELECT voting_status, count(*) FROM tiles GROUP BY 1")
        return Counter({str(status): int(str(count)) for status, count in found})


Step = Callable[[FaultyInstallation], None]


def run_steps(*commands: tuple[str, ...]) -> Step:
    def prepare(installation: FaultyInstallation) -> None:
        write_captures(installation.home / "card", CAPTURES)
        for command in commands:
            ran = installation.run(*command).result
            assert ran.code == 0, ran

    return prepare


def enqueue_runs(installation: FaultyInstallation) -> None:
    """Queue one run of each kind."""
    run_steps(INGEST)(installation)
    record = {"flight_id": "F2", "state": "on_ground", "recorded_at": datetime.now(UTC).isoformat()}
    (installation.home / "record.json").write_text(json.dumps(record), encoding="utf-8")
    with installation.open_database() as database:
        control_plane = create_postgres_control_plane(database)
        works = [AcquirePartition(key=PARTITION, area=AREA)]
        control_plane.partitions.enqueue(works, actor=Actor.OPERATOR)
        control = control_plane.control
        control.submit(
            DownloadArea(source="satellite", flight_id="F1", area=AREA), actor=Actor.OPERATOR
        )
        control.submit(UploadFlight(source="satellite", flight_id="F2"), actor=Actor.OPERATOR)


def check_downloaded(installation: FaultyInstallation) -> None:
    (count,) = installation.fetch_rows("SELECT count(*) FROM tiles WHERE source = 'satellite'")
    assert count == (len(TILES),)


def check_ingested(installation: FaultyInstallation) -> None:
    assert installation.get_statuses() == Counter(pending=CAPTURES)


def check_uploaded(installation: FaultyInstallation) -> None:
    statuses = installation.get_statuses()
    assert statuses["uploaded"] == CAPTURES - 1
    assert statuses["upload_giveup"] == 1


def check_worked(installation: FaultyInstallation) -> None:
    check_downloaded(installation)
    check_uploaded(installation)
    runs = installation.fetch_rows("SELECT DISTINCT status FROM runs ORDER BY 1")
    assert runs == [("needs_review",), ("passed",)]  # the upload has given a tile up
    partitions = installation.fetch_rows("SELECT status FROM partitions")
    assert partitions == [("success",)]


def check_exported(name: str) -> Step:
    def check(installation: FaultyInstallation) -> None:
        assert (installation.home / name).exists()

    return check


@frozen(kw_only=True)
class FaultScenario:
    """A command, what precedes it, and how it is recognised as complete."""

    command: tuple[str, ...]
    prepare: Step
    is_complete: Step
    """Raises an ``AssertionError`` unless the work of the command is done."""
    done_codes: frozenset[int] = frozenset({0})


COUNTS = Path("build/faults.txt")


def try_every(what: str, check: Callable[[int], bool]) -> None:
    """Check fault after fault until one is not reached; then report all that were problems."""
    COUNTS.parent.mkdir(exist_ok=True)
    problems = []
    reached = 0
    for number in range(FAULTS_MAX):
        try:
            if not check(number):
                break
        except Exception as error:  # noqa: BLE001  # all are tried, then all is reported
            problems.append(f"{what} at {number}: {type(error).__name__}: {error}")
            with COUNTS.open("a", encoding="utf-8") as file:
                file.write(f"{problems[-1]}\n\n")
            if len(problems) == PROBLEMS_MAX:
                break
        reached += 1
    with COUNTS.open("a", encoding="utf-8") as file:
        file.write(f"{what}: {reached} faults, {len(problems)} problems\n")
    assert not problems, "\n\n".join(problems)


SCENARIOS = {
    "download": FaultScenario(command=DOWNLOAD, prepare=run_steps(), is_complete=check_downloaded),
    "ingest": FaultScenario(command=INGEST, prepare=run_steps(), is_complete=check_ingested),
    "upload": FaultScenario(
        command=("upload", "--flight", "F2", "--on-ground"),
        prepare=run_steps(INGEST),
        is_complete=check_uploaded,
        done_codes=frozenset({0, 3}),
    ),
    "worker": FaultScenario(
        command=("worker", "--until-idle"), prepare=enqueue_runs, is_complete=check_worked
    ),
    **{
        f"export {name}": FaultScenario(
            command=("cache", "export", name, "--replace"),
            prepare=run_steps(DOWNLOAD),
            is_complete=check_exported(name),
        )
        for name in ("area.mbtiles", "area.pmtiles", "area")
    },
}


def prepare(installation: FaultyInstallation, scenario: FaultScenario) -> None:
    """Do what precedes the command, and save the state."""
    scenario.prepare(installation)
    installation.save()
