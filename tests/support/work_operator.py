"""An operator of the queue: runs and partitions in every state, and a shell to look at them."""

import getpass
import io
import logging
import socket
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from support.control_plane import ControlPlane, acquire_work, create_sealed, partition_key
from support.operator import CommandResult, Operator
from support.raw_partitions import create_report
from tileferry.adapters.filesystem import FileRawSink
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresWorkReader
from tileferry.application.ports.work import RunFilter
from tileferry.domain.audit import StateChanged
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
from tileferry.domain.runs import Run, RunKind, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault
from tileferry.domain.work import AcquirePartition, parse_work

REJECTION_REASON = "2 of 400 tiles are missing"
AREA_OPTIONS = ("--bbox", "2.0,48.0,2.1,48.1", "--zoom", "15", "--sector", "stable_rear")
UNREACHABLE_ERROR = SatelliteProviderError(
    reason="connection reset", fault=ProviderFault.UNREACHABLE
)
FINAL_ERROR = InvalidValueError(field="bbox", value=1, problem="is none")


def rate_limited_error(retry_after_s: float) -> RateLimitedError:
    """A source that wants patience."""
    return RateLimitedError(url="https://tiles", attempts=2, retry_after_s=retry_after_s)


def judge_next_run(
    control_plane: ControlPlane, outcome: VerdictOutcome = VerdictOutcome.FAILED
) -> Run:
    """Have the run that is next seal its partition, and be judged."""
    run = control_plane.claim_run()
    key = PartitionKey.parse((run.dedupe_key or "").partition("/")[2])
    reasons = () if outcome is VerdictOutcome.PASSED else (REJECTION_REASON,)
    verdict = Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)
    control_plane.control.process_result(run, verdict, sealed=create_sealed(run, key))
    return run


def get_partition(control_plane: ControlPlane, key: PartitionKey) -> Partition:
    """Look a partition up."""
    found = control_plane.reader.find_partition(key)
    assert found is not None
    return found


@frozen
class WorkOperator:
    """Runs commands in this process; the configured source is ``osm``."""

    home: Path
    database_url: str

    def run(self, *arguments: str, **settings: str) -> CommandResult:
        """Run a command, with a raw sink that has what the books say was sealed."""
        raw_root = self.home / "raw"
        if arguments[0] == "state":
            fill_sink(self.database_url, raw_root)
        return Operator(self.home, self.database_url).run_in_process(
            *arguments,
            TILEFERRY_C11_SOURCE="osm",
            TILEFERRY_LOG_FILE=str(self.home / "log.jsonl"),
            **{"TILEFERRY_PARTITIONS_RAW_ROOT": str(raw_root), **settings},
        )


def fill_sink(database_url: str, root: Path) -> None:
    """Seal an empty raw partition for each run that has one in the books."""
    sink = FileRawSink(root=root, clock=ManualClock(), logger=logging.getLogger("test"))
    database = Database.from_url(database_url)
    reader = PostgresWorkReader(database=database)
    wanted = RunFilter(kinds=[RunKind.ACQUIRE_PARTITION])
    runs: list[Run] = []
    with suppress(DatabaseError):  # without a schema there is nothing to seal
        runs = [*reader.list_runs(wanted, limit=1_000)]
    for run in runs:
        sealed = reader.find_raw(run.run_id)
        if sealed is not None and sink.find(sealed.key, run.run_id) is None:
            work = parse_work(run.kind, run.payload)
            assert isinstance(work, AcquirePartition)
            with sink.open(sealed.key, run.run_id, work.area) as raw:
                raw.seal(create_report(0, run_id=run.run_id), at=sealed.sealed_at)
    database.close()


MARCH = ("--from", "2026-03-01", "--to", "2026-03-31")
REASON = ("--reason", "the link is back")


def enqueue_days(control_plane: ControlPlane, days: int) -> None:
    works = [acquire_work(partition_key(day)) for day in range(1, days + 1)]
    control_plane.partitions.enqueue(works, actor=Actor.OPERATOR)


def create_failed_days(control_plane: ControlPlane, days: int) -> None:
    """Have the first days of a month, of which the validator rejected all."""
    enqueue_days(control_plane, days)
    for _ in range(days):
        judge_next_run(control_plane)


def list_statuses(control_plane: ControlPlane, days: int) -> list[PartitionStatus]:
    return [get_partition(control_plane, partition_key(day)).status for day in range(1, days + 1)]


def list_overrides(control_plane: ControlPlane) -> list[StateChanged]:
    """What the audit log has of operators who gave a reason."""
    return [
        event
        for event in control_plane.events()
        if isinstance(event, StateChanged) and event.actor == "operator" and event.reason
    ]


def assert_refused(ran: CommandResult, code: int, *words: str) -> None:
    assert (ran.code, ran.out) == (code, ""), ran
    said = " ".join(ran.err.replace("│", " ").split())
    for word in words:
        assert word in said


class FakeTerminal(io.StringIO):
    """Somebody at a keyboard."""

    def isatty(self) -> bool:
        return True


def current_operator() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
