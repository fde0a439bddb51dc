"""The work that is interrupted by power cuts: an operator's commands, some of them killed.

Runs as a process: ``python -m powerloss.workload DISK PROVIDER_URL PROMISES SEED FILESYSTEM
[BUG]``. A promise is written to PROMISES, which is not on DISK, when the product reports something
as done. Each command is a process of its own, as on a shell.
"""

import multiprocessing
import os
import random
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, frozen
from support.audit_events import create_events_lost
from support.cache_upload_env import write_captures

from powerloss.site import (
    AREAS,
    CAPTURED,
    CAPTURES,
    LEASE_S,
    PARTITIONS,
    RECORDER_FILES,
    RECORDER_PAYLOAD,
    PromiseLog,
    Site,
    compute_digest,
    open_outbox,
    read_number,
)
from powerloss.storage import FileSystem
from powerloss.syncs import BUGS, HIDDEN_BUGS, PlantedBug, SyncWatch
from tileferry.adapters.filesystem import FileFdrClient
from tileferry.adapters.postgres.embedded import EmbeddedServer
from tileferry.adapters.system import SystemClock
from tileferry.application.cache.group_commit import GroupLimits
from tileferry.application.ports.audit import EventGroup
from tileferry.domain.retry import RetryCategory
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import PruneRule
from tileferry.domain.tiles.flight import OperatorNote
from tileferry.domain.work import AcquirePartition
from tileferry.entrypoints.embedding import Tileferry

_NOTE = OperatorNote(by="operator", reason="power cuts")
_GROUP_TILES = 16
"""Tiles are made durable in small groups, so that there are many of them."""
_RECORDS = 14
_KEYS = 6
_GROUPS = 8
_WAIT_S = 120.0


@frozen(kw_only=True)
class Work:
    """What a command gets."""

    site: Site
    promises: PromiseLog
    card: Path

    def open(self) -> Tileferry:
        return Tileferry(self.site.create_config(), listener=self.promises)


def create_server(work: Work) -> None:
    with work.open() as ferry:
        ferry.upgrade_database()
        work.promises.add("schema")


def download(flight: str) -> Callable[[Work], None]:
    def download_flight(work: Work) -> None:
        promises, area = work.promises, AREAS[flight]
        promises.flight = flight
        with work.open() as ferry:
            report = ferry.download(
                bbox=area.bbox,
                zoom_levels=area.zoom_levels,
                flight=flight,
                sector=area.sector_class,
            )
            promises.add("downloaded", flight=flight, outcome=report.outcome.value)
            _promise_audit(ferry, promises)

    return download_flight


def pin(work: Work) -> None:
    with work.open() as ferry:
        ferry.flights.pin("F1", _NOTE)
        work.promises.add("pinned", flight="F1")


def ingest(work: Work) -> None:
    with work.open() as ferry:
        ferry.ingest(work.card, flight=CAPTURED)
        work.promises.add("ingested", tiles=CAPTURES)


def upload(work: Work) -> None:
    with work.open() as ferry:
        while ferry.tile_inventory.count_pending(CAPTURED):
            ferry.upload(flight=CAPTURED, on_ground=True)
        given_up = [str(giveup.tile.tile_id) for giveup in ferry.giveups.iter_giveups()]
        work.promises.add("given_up", tiles=given_up)


def enqueue(work: Work) -> None:
    with work.open() as ferry:
        acquisitions = [AcquirePartition(key=key, area=area) for key, area in PARTITIONS.items()]
        ferry.partition_control.enqueue(acquisitions, actor=Actor.OPERATOR, by="operator")
        work.promises.add("enqueued")


def acquire(work: Work) -> None:
    with work.open() as ferry:
        ferry.work()
        for key in PARTITIONS:
            found = ferry.work_reader.find_partition(key)
            work.promises.add(
                "acquired", key=str(key), run_id=None if found is None else found.current_run_id
            )
        _promise_audit(ferry, work.promises)


def export(name: str) -> Callable[[Work], None]:
    def export_cache(work: Work) -> None:
        path = work.site.exports / name
        with work.open() as ferry:
            work.promises.add("exporting", name=name)
            ferry.export(path, replace=True)
        work.promises.add("exported", name=name, sha256=compute_digest(path))

    return export_cache


def record(work: Work) -> None:
    recorder = FileFdrClient(
        root=work.site.recorder,
        clock=SystemClock(),
        files_max=RECORDER_FILES,
        file_bytes_max=3 * len(RECORDER_PAYLOAD) + 2_000,
    )
    last = max((read_number(each) for each in recorder.records()), default=0)
    for number in range(last + 1, last + 1 + _RECORDS):
        recorder.record(
            "powerloss.test", {"number": number, "text": RECORDER_PAYLOAD}, durable=True
        )
        work.promises.add("recorded", number=number)
    recorder.close()


def queue_events(work: Work) -> None:
    """Let audit events wait for their sink."""
    outbox = open_outbox(work.site)
    for number in range(_GROUPS):
        group = EventGroup(group_id=f"{os.getpid()}-{number}", events=[create_events_lost(number)])
        outbox.append(group)
        work.promises.add("queued", group=group.group_id)


def deliver_events(work: Work) -> None:
    outbox = open_outbox(work.site)
    outbox.deliver(
        lambda group: work.promises.add("delivering", group=group.group_id), has_time=lambda: True
    )


def use_keys(work: Work) -> None:
    """Call operations once each, with idempotency keys."""
    with work.open() as ferry:
        for number in range(_KEYS):
            ferry.retry_manager.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                "powerloss",
                lambda: number,  # noqa: B023  # called at once
                idempotency_key=f"key-{number}",
                result_type=int,
            )
            work.promises.add("called", number=number)


def prune(work: Work) -> None:
    """Remove a flight and its tiles; this compacts the files."""
    with work.open() as ferry:
        if any(each.flight.flight_id == "F3" for each in ferry.flights.list_summaries()):
            ferry.flights.remove("F3", _NOTE)
        with ferry.hold_cache():
            rule = PruneRule(unowned=True)
            count = ferry.cache_maintenance.preview_prune(rule).tiles
            ferry.cache_maintenance.prune(rule, confirmed=count)
        work.promises.add("pruned")


def compact(work: Work) -> None:
    with work.open() as ferry:
        with ferry.hold_cache():
            ferry.cache_maintenance.compact()
        work.promises.add("compacted")


def _promise_audit(ferry: Tileferry, promises: PromiseLog) -> None:
    promises.add("audited", entries=ferry.audit_reader.log.read_head().sequence)


@define(kw_only=True)
class Conductor:
    """Runs commands one after the other, and kills some."""

    work: Work
    chance: random.Random
    bug: PlantedBug | None

    def run(self, phase: str, command: Callable[[Work], None]) -> None:
        """Run a command to its end, as a phase of its own."""
        self.work.promises.add("begin", phase=phase)
        if self._start(command).wait() != 0:
            raise SystemExit(f"powerloss: phase {phase!r} failed")

    def kill_at_sync(self, phase: str, command: Callable[[Work], None], last: int) -> None:
        """Kill a command right before one of its first ``last`` syncs."""
        self.work.promises.add("begin", phase=f"{phase} (killed)")
        self._start(command, kill_at=self.chance.randint(last // 2, last)).wait()

    def kill_after(self, phase: str, command: Callable[[Work], None], seconds: float) -> None:
        """Kill a command after some time; what it started, such as initdb, continues."""
        self.work.promises.add("begin", phase=f"{phase} (killed)")
        self._start(command).wait(self.chance.uniform(seconds / 2, seconds))

    def kill_server(self) -> None:
        """Start the server, and kill its main process."""
        self.work.promises.add("begin", phase="server (killed)")
        server = EmbeddedServer(self.work.site.create_config().data_dir)
        server.join()
        pid = server.find_status().pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        server.leave()

    def _start(self, command: Callable[[Work], None], **kill: int) -> "_Command":
        process = multiprocessing.get_context("fork").Process(
            target=_run_command, args=(command, self.work, self.bug), kwargs=kill
        )
        process.start()
        return _Command(process)


@frozen
class _Command:
    process: Any

    def wait(self, seconds: float = _WAIT_S) -> int | None:
        """Wait for its end, or kill it."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code: int | None = self.process.exitcode
        return code


def _run_command(
    command: Callable[[Work], None], work: Work, bug: PlantedBug | None, kill_at: int | None = None
) -> None:
    SyncWatch(bug, kill_at).install()
    _limit_groups()
    if work.site.trash.exists():
        _move_removed(work.site.trash)
    command(work)
    # What the end of a process does.
    EmbeddedServer(work.site.create_config().data_dir).leave()


def _limit_groups() -> None:
    init = GroupLimits.__init__

    def init_small(limits: GroupLimits, **given: Any) -> None:
        init(limits, **{"tiles_max": _GROUP_TILES, **given})

    GroupLimits.__init__ = init_small  # type: ignore[method-assign,assignment]  # for this process


def _move_removed(trash: Path) -> None:
    """Move folders that are removed, so that their inodes are not used again.

    A removal that is not synced may be undone by a cut. That is harmless, but without a journal the
    old name leads to whatever has the inode by then, and the repair may remove the new name.
    """
    remove = shutil.rmtree

    def move(folder: Path, **options: Any) -> None:
        try:
            Path(folder).rename(trash / secrets.token_hex(8))
        except OSError:  # on another disk
            remove(folder, **options)

    shutil.rmtree = move  # type: ignore[assignment]  # for this process


def conduct(conductor: Conductor) -> None:
    """Do what an operator does from an empty disk on."""
    do, kill = conductor.run, conductor.kill_at_sync
    conductor.kill_after("create", create_server, 0.6)
    conductor.kill_after("create", create_server, 1.6)
    do("create", create_server)
    kill("download", download("F1"), 40)
    do("download", download("F1"))
    do("pin", pin)
    kill("record", record, 20)
    do("record", record)
    kill("outbox", queue_events, 12)
    do("outbox", queue_events)
    kill("deliver", deliver_events, 3)
    do("outbox again", queue_events)
    do("deliver", deliver_events)
    conductor.kill_server()
    do("ingest", ingest)
    conductor.kill_after("upload", upload, 0.8)
    do("upload", upload)
    do("enqueue", enqueue)
    kill("raw", acquire, 40)
    kill("raw", acquire, 60)
    time.sleep(LEASE_S)
    do("raw", acquire)
    do("keys", use_keys)
    do("second download", download("F2"))
    kill("export pmtiles", export("tiles.pmtiles"), 3)
    do("export pmtiles", export("tiles.pmtiles"))
    kill("evict", download("F3"), 30)
    do("evict", download("F3"))
    do("export mbtiles", export("tiles.mbtiles"))
    do("export tree", export("tiles"))
    do("replace tree", export("tiles"))
    kill("prune", prune, 14)
    do("prune", prune)
    kill("compact", compact, 12)
    do("compact", compact)
    do("export again", export("tiles.pmtiles"))
    conductor.work.promises.add("end")


def prepare(site: Site, kind: FileSystem) -> None:
    """Create the folder that the operator creates."""
    site.exports.mkdir()
    if not kind.has_journal:
        site.trash.mkdir()
    os.sync()


if __name__ == "__main__":
    disk, provider_url, promise_file = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    card = promise_file.with_name("card")
    write_captures(card, CAPTURES)
    site = Site(disk=disk, provider_url=provider_url, lease_s=LEASE_S)
    prepare(site, FileSystem(sys.argv[5]))
    with promise_file.open("a", encoding="utf-8") as file:
        conduct(
            Conductor(
                work=Work(site=site, promises=PromiseLog(file), card=card),
                chance=random.Random(int(sys.argv[4])),  # noqa: S311  # repeatable
                bug={**BUGS, **HIDDEN_BUGS}[sys.argv[6]] if len(sys.argv) > 6 else None,
            )
        )
