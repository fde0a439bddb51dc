"""Consumers read the data of a success, whatever else is going on, and of nothing else."""

import pytest
from attrs import define, evolve
from support.control_plane import ControlPlane, create_memory_control_plane
from support.raw_partitions import AREA, KEY, TILES, seal

from tileferry.adapters.memory import ManualClock, MemoryRawSink
from tileferry.application.control.partition_control import OperatorOverride
from tileferry.application.control.queries import PartitionDataReader
from tileferry.domain.errors import InvalidStateError
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import Run, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.work import AcquirePartition

ANN = OperatorOverride(by="ann@laptop", reason="the provider has better pictures")


@define
class ReadingEnv:
    """Books, a raw sink, and a consumer."""

    desk: ControlPlane
    sink: MemoryRawSink

    @property
    def consumer(self) -> PartitionDataReader:
        return PartitionDataReader(
            partitions=self.desk.reader, raw=self.desk.reader, sink=self.sink
        )

    def seal_and_judge(self, run: Run, outcome: VerdictOutcome) -> SealedPartition:
        """Have a run seal its raw partition, and be judged."""
        sealed = seal(self.sink, TILES[:5], run_id=run.run_id)
        reasons = () if outcome is VerdictOutcome.PASSED else ("tiles are missing",)
        verdict = Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)
        self.desk.control.process_result(run, verdict, sealed=sealed)
        return sealed


@pytest.fixture
def env() -> ReadingEnv:
    desk = create_memory_control_plane()
    desk.partitions.enqueue([AcquirePartition(key=KEY, area=AREA)], actor=Actor.OPERATOR)
    return ReadingEnv(desk, MemoryRawSink(clock=ManualClock()))


def get_status(site: ReadingEnv) -> PartitionStatus:
    found = site.desk.reader.find_partition(KEY)
    assert found is not None
    return found.status


def test_unknown_or_pending_partition_is_not_readable(env: ReadingEnv) -> None:
    assert env.consumer.find_readable(evolve(KEY, customer_id="nobody")) is None
    assert (env.consumer.find_readable(KEY), env.consumer.open(KEY)) == (None, None)
    run = env.desk.claim_run()
    seal(env.sink, TILES[:5], run_id=run.run_id)  # sealed, and not judged yet
    assert (get_status(env), env.consumer.find_readable(KEY)) == (PartitionStatus.PENDING, None)


def test_failed_partition_is_not_readable(env: ReadingEnv) -> None:
    env.seal_and_judge(env.desk.claim_run(), VerdictOutcome.FAILED)
    assert (get_status(env), env.consumer.find_readable(KEY)) == (PartitionStatus.FAILED, None)
    env.desk.partitions.retry([KEY], ANN)
    assert (get_status(env), env.consumer.find_readable(KEY)) == (PartitionStatus.PENDING, None)


@pytest.mark.parametrize("outcome", [VerdictOutcome.PASSED, VerdictOutcome.NEEDS_REVIEW])
def test_successful_partition_is_readable(env: ReadingEnv, outcome: VerdictOutcome) -> None:
    sealed = env.seal_and_judge(env.desk.claim_run(), outcome)
    assert env.consumer.find_readable(KEY) == sealed
    reading = env.consumer.open(KEY)
    assert reading is not None
    with reading as reader:
        assert len(list(reader.iter_entries())) == 5


def test_success_stays_readable_during_reprocessing(env: ReadingEnv) -> None:
    first = env.seal_and_judge(env.desk.claim_run(), VerdictOutcome.PASSED)
    env.desk.partitions.retry([KEY], ANN)
    assert env.consumer.find_readable(KEY) == first
    run = env.desk.claim_run()
    assert env.consumer.find_readable(KEY) == first
    env.seal_and_judge(run, VerdictOutcome.FAILED)
    assert env.consumer.find_readable(KEY) == first
    env.desk.partitions.retry([KEY], ANN)
    second = env.seal_and_judge(env.desk.claim_run(), VerdictOutcome.PASSED)
    assert env.consumer.find_readable(KEY) == second != first


def test_invariant_16_missing_sealed_partition_is_rejected(env: ReadingEnv) -> None:
    env.seal_and_judge(env.desk.claim_run(), VerdictOutcome.PASSED)
    emptied = PartitionDataReader(
        partitions=env.desk.reader,
        raw=env.desk.reader,
        sink=MemoryRawSink(clock=ManualClock()),
    )
    with pytest.raises(InvalidStateError, match="is missing or has changed since it was sealed"):
        emptied.find_readable(KEY)
