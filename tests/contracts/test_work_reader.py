"""What every reader of the books must give: sources with their load, pages, raw partitions."""

from datetime import UTC, date, datetime

from attrs import evolve
from support.work_desk import (
    LEASE,
    W1,
    Desk,
    acquire,
    download,
    key,
    sealed_by,
)

from tileferry.application.ports.work import PartitionFilter, SourceLoad
from tileferry.domain.actors import Actor
from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.partitions import PartitionKey, PartitionStatus
from tileferry.domain.runs import RunId, Verdict, VerdictOutcome
from tileferry.domain.tiles.provider_faults import ProviderFault

BROKEN = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)


def listed(desk: Desk, wanted: PartitionFilter) -> list[PartitionKey]:
    return [partition.key for partition in desk.reader.find_partitions(wanted)]


def test_each_source_has_its_load(desk: Desk) -> None:
    assert desk.reader.loads() == {}
    for number in range(5):
        desk.submitted(download(f"F{number}"))
    desk.submitted(download("F9", source="sat"))
    broken, limited, under_way = desk.queue.claim(W1, limit=3, lease=LEASE)
    first = desk.control.process_error(broken, BROKEN)
    desk.control.process_error(limited, RateLimitedError(url="u", attempts=1, retry_after_s=900))
    assert desk.reader.loads() == {
        "osm": SourceLoad(ready=2, waiting=2, under_way=1, next_retry_at=first.next_retry_at),
        "sat": SourceLoad(ready=1, waiting=0, under_way=0, next_retry_at=None),
    }
    desk.control.give_back(under_way)
    assert desk.reader.loads()["osm"].ready == 3
    desk.control.retry_now(broken.run_id, reason="the link is back", by="ann")
    assert (desk.reader.loads()["osm"].ready, desk.reader.loads()["osm"].waiting) == (4, 1)


def test_a_list_goes_on_where_an_earlier_one_ended(desk: Desk) -> None:
    keys = [key(day, query=query) for query in ("city", "roads") for day in (1, 2, 3)]
    desk.partitions.enqueue([acquire(one) for one in reversed(keys)], actor=Actor.OPERATOR)
    assert listed(desk, PartitionFilter()) == keys
    for number, last in enumerate(keys, start=1):
        assert listed(desk, PartitionFilter(after=last)) == keys[number:]
    beyond = evolve(keys[2], logical_date=date(2027, 1, 1))  # there need not be such a partition
    assert listed(desk, PartitionFilter(after=beyond)) == keys[3:]
    wanted = PartitionFilter(query_name="roads", statuses=[PartitionStatus.PENDING], after=keys[3])
    assert listed(desk, wanted) == keys[4:]


def test_invariant_16_a_raw_partition_is_found_as_it_was_noted(desk: Desk) -> None:
    desk.partitions.enqueue([acquire(key(1))], actor=Actor.OPERATOR)
    run = desk.claimed()
    assert desk.reader.find_raw(run.run_id) is None
    sealed = evolve(
        sealed_by(run, key(1)), sealed_at=datetime(2026, 7, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    )
    verdict = Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED)
    desk.control.process_result(run, verdict, sealed=sealed)
    assert desk.reader.find_raw(run.run_id) == sealed
    assert desk.reader.find_raw(RunId("nobody")) is None
