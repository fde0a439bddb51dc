"""The commands that the documents show, and a place where all of them can be typed."""

import json
import re
import shlex
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

from attrs import define, field, frozen

from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    create_postgres_control_plane,
    create_sealed,
)
from support.download_operator import wait_until
from support.forked_command import ForkedCommand
from support.operator import CommandResult, Operator, run_in_process
from support.provider import API_KEY, RunningProvider
from support.work_operator import fill_sink
from tileferry.adapters.postgres import Database
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import RunId, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import BBox, SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.provider_faults import ProviderFault
from tileferry.domain.work import AcquirePartition, DownloadArea
from tileferry.entrypoints.provider.imagery import draw_tile

ROOT = Path(__file__).parents[2]
RUN = RunId("0193a2b4c5d6-0123456789abcdef")
"""The run that the documents speak of."""
FAILED_DAYS = range(1, 29)
"""Days of March whose partitions the validator rejected: one is retried by name, the rest as 27."""
SHOWN_AREA = "36.1,49.9,36.4,50.1"
SMALL_AREA = "36.20,49.90,36.24,49.92"
"""The documents download an area of some size; here a corner of it will do."""
CONFIGURATION = """\
[tileferry.areas]
derkachi = "36.20,49.90,36.24,49.92"
depot = "36.20,49.90,36.21,49.91"
"""
_BOX = BBox(west=36.20, south=49.90, east=36.21, north=49.91)
_BEGINS = re.compile(r"\s*(?:\$ )?(tileferry [^#&]*)")
_LONG_RUNNING = (("provider", "serve"), ("worker",), ("audit", "tail", "--follow"))
"""What runs until it is stopped, unless it says otherwise."""
_PATIENCE_S = 60.0


def documented_commands(text: str) -> list[str]:
    """Return the commands in a page's blocks; what was recorded from a demo is left out."""
    text = re.sub(r"<!-- demo -->.*?<!-- end -->", "", text, flags=re.DOTALL)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return extract_commands("".join(block for language, block in blocks if not language))


def extract_commands(block: str) -> list[str]:
    """Return the commands in a block; one may go on in the next line."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [matched[1].strip() for line in lines if (matched := _BEGINS.match(line))]


def list_pages() -> dict[str, list[str]]:
    """Return the pages that show commands, with these."""
    found = [ROOT / "README.md", *sorted((ROOT / "_docs").rglob("*.md"))]
    shown = {page: documented_commands(page.read_text(encoding="utf-8")) for page in found}
    return {str(page.relative_to(ROOT)): commands for page, commands in shown.items() if commands}


@frozen
class TypedCommand:
    """A command that was typed, and how it ended."""

    command: str
    ran: CommandResult


@define
class DocumentedEnv:
    """An operator with everything that the documents speak of."""

    home: Path
    database_url: str
    provider: RunningProvider
    _plans: int = field(default=0, init=False)

    @property
    def settings(self) -> dict[str, str]:
        """What the operator has set."""
        return {
            "TILEFERRY_DATABASE_URL": self.database_url,
            "TILEFERRY_C11_CACHE_ROOT": str(self.home / "cache"),
            "TILEFERRY_C11_SATELLITE_PROVIDER_URL": self.provider.url,
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_C11_FLIGHT_RECORD_FILE": str(self.home / "record.json"),
            "TILEFERRY_C11_BACKOFF_BASE_S": "0",
            "TILEFERRY_C11_MAX_PER_TILE_ATTEMPTS": "3",
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(self.home / "raw"),
            "TILEFERRY_LOG_FILE": str(self.home / "log.jsonl"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
        }

    def set_up(self, database: Database) -> None:
        """Have a card, a flight record, areas, a run that broke, and bad days in March."""
        (self.home / "backups").mkdir()
        (self.home / "tileferry.toml").write_text(CONFIGURATION)
        record = {"flight_id": "F7", "state": "on_ground", "recorded_at": f"{datetime.now(UTC)}"}
        (self.home / "record.json").write_text(json.dumps(record))
        for y in (22_000, 22_001):
            picture = self.home / "card" / "16" / "39000" / f"{y}.jpg"
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(draw_tile(16, 39_000, y))
        self.provider.set_faults({"fault": "poison", "tile": "16/39000/22000", "reason": "clouds"})
        _write_foreign_archive(self.home / "other.mbtiles")
        write_area_files(self.home)
        desk = create_postgres_control_plane(database)
        _break_run(desk)
        _reject_march(desk)
        fill_sink(self.database_url, self.home / "raw")

    def type_command(self, command: str) -> TypedCommand:
        """Type a command as it is shown, but in a smaller area and with folders of our own."""
        words = [self._localize(word) for word in shlex.split(command)[1:]]
        stays = any(tuple(words[: len(one)]) == one for one in _LONG_RUNNING)
        if stays and "--until-idle" not in words:
            return TypedCommand(command, self._start_and_stop(words))
        return TypedCommand(command, run_in_process(*words))

    def _localize(self, word: str) -> str:
        word = word.replace(SHOWN_AREA, SMALL_AREA).replace(":9464", ":0")
        for theirs in ("/media", "/run/tileferry", "/home/me", "/srv"):
            word = word.replace(theirs, str(self.home))
        return word

    def _start_and_stop(self, words: list[str]) -> CommandResult:
        """Run what does not end by itself until it has said that it is there."""
        operator = Operator(self.home, self.database_url)
        port = [] if "--port" in words or words[0] != "provider" else ["--port", "0"]
        command = ForkedCommand([*words, *port], operator.environment(**self.settings), self.home)
        wait_until(lambda: "\n" in command.read_output() or command.poll() is not None, "a line")
        command.terminate()
        code = command.wait(_PATIENCE_S)
        return CommandResult(code, command.read_output(), "")


def write_area_files(folder: Path) -> None:
    """Write a field, a route and a mission in a corner of the area of the documents."""
    west, south, east, north = map(float, SMALL_AREA.split(","))
    ring = [[west, south], [east, south], [west, north], [west, south]]
    (folder / "field.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    points = f"<rtept lat='{south}' lon='{west}'/><rtept lat='{north}' lon='{east}'/>"
    (folder / "route.gpx").write_text(f"<gpx version='1.1'><rte>{points}</rte></gpx>")
    waypoint = {"type": "SimpleItem", "command": 16, "params": [0, 0, 0, 0, north, east, 50]}
    mission = {"plannedHomePosition": [south, west, 0], "items": [waypoint]}
    (folder / "mission.plan").write_text(json.dumps({"fileType": "Plan", "mission": mission}))


def _break_run(control_plane: ControlPlane) -> None:
    """Have a download whose connection was lost, under the name that the documents use."""
    work = DownloadArea(
        source="satellite",
        flight_id="F6",
        area=Area(bbox=_BOX, zoom_levels=(14,), sector_class=SectorClass.STABLE_REAR),
    )
    control = control_plane.control
    control.new_run_id = lambda: RUN
    control.submit(work, actor=Actor.OPERATOR)
    run = control.get_next_run_to_process(W1, lease=LEASE)
    assert run is not None
    broken = SatelliteProviderError(reason="connection reset", fault=ProviderFault.UNREACHABLE)
    control.process_error(run, broken)


def _reject_march(control_plane: ControlPlane) -> None:
    """Have the validator reject days of a query."""
    area = Area(bbox=_BOX, zoom_levels=(14,), sector_class=SectorClass.STABLE_REAR)
    works = [AcquirePartition(key=_partition_key(day), area=area) for day in FAILED_DAYS]
    control_plane.partitions.enqueue(works, actor=Actor.OPERATOR)
    for _ in works:
        run = control_plane.claim_run()
        key = PartitionKey.parse((run.dedupe_key or "").partition("/")[2])
        verdict = Verdict(
            run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=("2 tiles are missing",)
        )
        control_plane.control.process_result(run, verdict, sealed=create_sealed(run, key))


def _partition_key(day: int) -> PartitionKey:
    return PartitionKey(
        source="satellite",
        customer_id="acme",
        query_name="roads",
        logical_date=date(2026, 3, day),
    )


def _write_foreign_archive(file: Path) -> None:
    """Write what somebody else's program may have written: MBTiles with one picture."""
    with closing(sqlite3.connect(file)) as archive:
        archive.executescript(
            "CREATE TABLE metadata (name TEXT, value TEXT);"
            "CREATE TABLE tiles (zoom_level INT, tile_column INT, tile_row INT, tile_data BLOB);"
        )
        row = (14, 9_840, 2**14 - 1 - 5_562, draw_tile(14, 9_840, 5_562))
        archive.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", row)
        archive.commit()
