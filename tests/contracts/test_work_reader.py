"""What every reader of the books must give: sources with their load, pages, raw partitions."""

from datetime import UTC, date, datetime

from attrs import evolve
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    acquire_work,
    create_sealed,
    download_work,
    partition_key,
)

from tileferry.application.ports.work import PartitionFilter, RunFilter, SourceLoad
from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.partitions import PartitionKey, PartitionStatus
from tileferry.domain.runs import Run, RunId, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault

BROKEN = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)


def list_keys(desk: ControlPlane, wanted: PartitionFilter) -> list[PartitionKey]:
    return [partition.key for partition in desk.reader.find_partitions(wanted)]


def test_loads_are_counted_per_source(control_plane: ControlPlane) -> None:
    assert control_plane.reader.get_loads() == {}
    for number in range(5):
        control_plane.submit_run(download_work(f"F{number}"))
    control_plane.submit_run(download_work("F9", source="sat"))
    broken, limited, under_way = control_plane.queue.claim(W1, limit=3, lease=LEASE)
    first = control_plane.control.process_error(broken, BROKEN)
    control_plane.control.process_error(
        limited, RateLimitedError(url="u", attempts=1, retry_after_s=900)
    )
    assert control_plane.reader.get_loads() == {
        "osm": SourceLoad(ready=2, waiting=2, under_way=1, next_retry_at=first.next_retry_at),
        "sat": SourceLoad(ready=1, waiting=0, under_way=0, next_retry_at=None),
    }
    control_plane.control.release_run(under_way)
    assert control_plane.reader.get_loads()["osm"].ready == 3
    control_plane.control.retry_now(broken.run_id, reason="the link is back", by="ann")
    assert (
        control_plane.reader.get_loads()["osm"].ready,
        control_plane.reader.get_loads()["osm"].waiting,
    ) == (4, 1)


def test_runs_are_found_by_text_and_listed_page_by_page(control_plane: ControlPlane) -> None:
    for number in range(5):
        control_plane.submit_run(download_work(f"Flight-{number}"))
    control_plane.control.process_error(control_plane.claim_run(), BROKEN)
    runs = control_plane.reader.list_runs(RunFilter(), limit=9)
    for number, last in enumerate(runs, start=1):
        rest = RunFilter(after=(last.submitted_date, last.run_id))
        assert control_plane.reader.list_runs(rest, limit=9) == runs[number:]

    def find(text: str) -> list[Run]:
        return [*control_plane.reader.list_runs(RunFilter(text=text), limit=9)]

    assert [run.payload["flight_id"] for run in find("fLIGHT-3")] == ["Flight-3"]
    assert find(runs[2].run_id) == [runs[2]]
    assert [run.error_message for run in find("RESET")] == [runs[-1].error_message]
    assert find("%") == []
    searched = RunFilter(text="flight", searched_max=2)
    assert control_plane.reader.list_runs(searched, limit=9) == runs[:2]
    last = runs[1]
    rest = evolve(searched, text="flight-1", after=(last.submitted_date, last.run_id))
    assert control_plane.reader.list_runs(rest, limit=9) == [runs[3]]
    assert control_plane.reader.list_runs(evolve(rest, searched_max=1), limit=9) == []


def test_partition_listing_resumes_after_key(control_plane: ControlPlane) -> None:
    keys = [partition_key(day, query=query) for query in ("city", "roads") for day in (1, 2, 3)]
    control_plane.partitions.enqueue(
        [acquire_work(one) for one in reversed(keys)], actor=Actor.OPERATOR
    )
    assert list_keys(control_plane, PartitionFilter()) == keys
    for number, last in enumerate(keys, start=1):
        assert list_keys(control_plane, PartitionFilter(after=last)) == keys[number:]
    beyond = evolve(keys[2], logical_date=date(2027, 1, 1))  # there need not be such a partition
    assert list_keys(control_plane, PartitionFilter(after=beyond)) == keys[3:]
    wanted = PartitionFilter(query_name="roads", statuses=[PartitionStatus.PENDING], after=keys[3])
    assert list_keys(control_plane, wanted) == keys[4:]
    for limit in (0, 1, 4, 9):
        found = control_plane.reader.find_partitions(PartitionFilter(), limit=limit)
        assert [partition.key for partition in found] == keys[:limit]


def test_queries_are_listed_with_their_dates(control_plane: ControlPlane) -> None:
    assert control_plane.reader.list_queries(limit=9) == []
    keys = [
        partition_key(day, source=source, query=query)
        for source, query in (("sat", "city"), ("osm", "roads"), ("osm", "city"))
        for day in (3, 1, 2)
    ]
    control_plane.partitions.enqueue([acquire_work(one) for one in keys], actor=Actor.OPERATOR)
    found = control_plane.reader.list_queries(limit=9)
    assert [str(query) for query, _, _ in found] == [
        "osm/acme/city",
        "osm/acme/roads",
        "sat/acme/city",
    ]
    dates = {(first, last) for _, first, last in found}
    assert dates == {(date(2026, 3, 1), date(2026, 3, 3))}
    assert control_plane.reader.list_queries(limit=2) == found[:2]
    assert control_plane.reader.list_queries(after=found[0][0], limit=9) == found[1:]


def test_invariant_16_raw_partition_is_returned_as_recorded(control_plane: ControlPlane) -> None:
    control_plane.partitions.enqueue([acquire_work(partition_key(1))], actor=Actor.OPERATOR)
    run = control_plane.claim_run()
    assert control_plane.reader.find_raw(run.run_id) is None
    sealed = evolve(
        create_sealed(run, partition_key(1)),
        sealed_at=datetime(2026, 7, 1, 12, 0, 0, 123_456, tzinfo=UTC),
    )
    verdict = Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED)
    control_plane.control.process_result(run, verdict, sealed=sealed)
    assert control_plane.reader.find_raw(run.run_id) == sealed
    assert control_plane.reader.find_raw(RunId("nobody")) is None
