"""An operator of the queue: runs and partitions in every state, and a shell to look at them."""

import getpass
import io
import socket
from pathlib import Path

from attrs import frozen

from support.control_plane import ControlPlane, acquire_work, create_sealed, partition_key
from support.operator import CommandResult, Operator
from tileferry.domain.audit import StateChanged
from tileferry.domain.errors import (
    InvalidValueError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
from tileferry.domain.runs import Run, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault

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
        """Run a command."""
        return Operator(self.home, self.database_url).run_in_process(
            *arguments,
            TILEFERRY_C11_SOURCE="osm",
            TILEFERRY_LOG_FILE=str(self.home / "log.jsonl"),
            **settings,
        )


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
