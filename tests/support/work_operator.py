"""An operator of the queue: runs and partitions in every state, and a shell to look at them."""

from pathlib import Path

from attrs import frozen

from support.operator import Operator, Ran
from support.work_desk import Desk, sealed_by
from tileferry.domain.errors import (
    InvalidValueError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.runs import Run, Verdict, VerdictOutcome
from tileferry.domain.tiles.provider_faults import ProviderFault

WHY_REJECTED = "2 of 400 tiles are missing"
AREA_OPTIONS = ("--bbox", "2.0,48.0,2.1,48.1", "--zoom", "15", "--sector", "stable_rear")
BROKEN = SatelliteProviderError(reason="connection reset", fault=ProviderFault.UNREACHABLE)
HOPELESS = InvalidValueError(field="bbox", value=1, problem="is none")


def busy(retry_after_s: float) -> RateLimitedError:
    """A source that wants patience."""
    return RateLimitedError(url="https://tiles", attempts=2, retry_after_s=retry_after_s)


def judged(desk: Desk, outcome: VerdictOutcome = VerdictOutcome.FAILED) -> Run:
    """Have the run that is next seal its partition, and be judged."""
    run = desk.claimed()
    key = PartitionKey.parse((run.dedupe_key or "").partition("/")[2])
    reasons = () if outcome is VerdictOutcome.PASSED else (WHY_REJECTED,)
    verdict = Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)
    desk.control.process_result(run, verdict, sealed=sealed_by(run, key))
    return run


def partition_at(desk: Desk, key: PartitionKey) -> Partition:
    """Look a partition up."""
    found = desk.reader.find_partition(key)
    assert found is not None
    return found


@frozen
class WorkOperator:
    """Runs commands in this process; the configured source is ``osm``."""

    home: Path
    database_url: str

    def runs(self, *arguments: str, **settings: str) -> Ran:
        """Run a command."""
        return Operator(self.home, self.database_url).runs_here(
            *arguments,
            TILEFERRY_C11_SOURCE="osm",
            TILEFERRY_LOG_FILE=str(self.home / "log.jsonl"),
            **settings,
        )
