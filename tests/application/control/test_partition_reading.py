"""Consumers read the data of a success, whatever else is going on, and of nothing else."""

import pytest
from attrs import define, evolve
from support.raw_partitions import AREA, KEY, TILES, seal
from support.work_desk import Desk, memory_desk

from tileferry.adapters.memory import ManualClock, MemoryRawSink
from tileferry.application.control.partition_control import Override
from tileferry.application.control.partition_reading import PartitionReading
from tileferry.domain.actors import Actor
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import Run, Verdict, VerdictOutcome
from tileferry.domain.work import AcquirePartition

ANN = Override(by="ann@laptop", reason="the provider has better pictures")


@define
class Site:
    """Books, a raw sink, and a consumer."""

    desk: Desk
    sink: MemoryRawSink

    @property
    def consumer(self) -> PartitionReading:
        return PartitionReading(books=self.desk.reader, sink=self.sink)

    def judged(self, run: Run, outcome: VerdictOutcome) -> SealedPartition:
        """Have a run seal its raw partition, and be judged."""
        sealed = seal(self.sink, TILES[:5], run_id=run.run_id)
        reasons = () if outcome is VerdictOutcome.PASSED else ("tiles are missing",)
        verdict = Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)
        self.desk.control.process_result(run, verdict, sealed=sealed)
        return sealed


@pytest.fixture
def site() -> Site:
    desk = memory_desk()
    desk.partitions.enqueue([AcquirePartition.of(KEY, AREA)], actor=Actor.OPERATOR)
    return Site(desk, MemoryRawSink(clock=ManualClock()))


def status(site: Site) -> PartitionStatus:
    found = site.desk.reader.find_partition(KEY)
    assert found is not None
    return found.status


def test_spec3_s9_nothing_is_read_of_what_is_unknown_or_pending(site: Site) -> None:
    assert site.consumer.readable(evolve(KEY, customer_id="nobody")) is None
    assert (site.consumer.readable(KEY), site.consumer.open(KEY)) == (None, None)
    run = site.desk.claimed()
    seal(site.sink, TILES[:5], run_id=run.run_id)  # sealed, and not judged yet
    assert (status(site), site.consumer.readable(KEY)) == (PartitionStatus.PENDING, None)


def test_spec3_s9_nothing_is_read_of_a_failure(site: Site) -> None:
    site.judged(site.desk.claimed(), VerdictOutcome.FAILED)
    assert (status(site), site.consumer.readable(KEY)) == (PartitionStatus.FAILED, None)
    site.desk.partitions.retry([KEY], ANN)
    assert (status(site), site.consumer.readable(KEY)) == (PartitionStatus.PENDING, None)


@pytest.mark.parametrize("outcome", [VerdictOutcome.PASSED, VerdictOutcome.NEEDS_REVIEW])
def test_spec3_s9_a_success_is_read(site: Site, outcome: VerdictOutcome) -> None:
    sealed = site.judged(site.desk.claimed(), outcome)
    assert site.consumer.readable(KEY) == sealed
    reading = site.consumer.open(KEY)
    assert reading is not None
    with reading as reader:
        assert len(list(reader.entries())) == 5


def test_spec3_s2_a_success_stays_readable_while_it_is_reprocessed(site: Site) -> None:
    first = site.judged(site.desk.claimed(), VerdictOutcome.PASSED)
    site.desk.partitions.retry([KEY], ANN)
    assert site.consumer.readable(KEY) == first
    run = site.desk.claimed()
    assert site.consumer.readable(KEY) == first
    site.judged(run, VerdictOutcome.FAILED)
    assert site.consumer.readable(KEY) == first
    site.desk.partitions.retry([KEY], ANN)
    second = site.judged(site.desk.claimed(), VerdictOutcome.PASSED)
    assert site.consumer.readable(KEY) == second != first


def test_invariant_16_what_is_not_there_as_it_was_sealed_is_refused(site: Site) -> None:
    site.judged(site.desk.claimed(), VerdictOutcome.PASSED)
    emptied = PartitionReading(books=site.desk.reader, sink=MemoryRawSink(clock=ManualClock()))
    with pytest.raises(InvalidValueError, match="is not there any more as it was sealed"):
        emptied.readable(KEY)
