"""Calls to the provider: they keep to its pace and its gate, and name the rule of every wait."""

import logging
from collections.abc import Sequence

import pytest
from attrs import define, evolve, field
from support.memory_download_env import (
    BOX,
    ZOOM,
    MemoryDownloadEnv,
    MemoryProvider,
    create_fault,
    fetch_tiles,
)

from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.ports.progress import PaceChanged, ProgressEvent, RequestHeld
from tileferry.application.ports.provider import FetchedTile
from tileferry.domain.errors import ResponseSchemaError, SatelliteProviderError
from tileferry.domain.retry import HoldRule
from tileferry.domain.tiles import BBox, ListingLimits, ListingPage, ProviderFault, TileCoverage

BUSY = create_fault(ProviderFault.RATE_LIMITED, status=429)


@define
class PacedCalls:
    """The calls of a download of some tiles, and the events that they send."""

    area: MemoryDownloadEnv
    events: list[ProgressEvent] = field(factory=list)

    def create(self) -> ProviderCalls:
        retry = self.area.bench.create_manager(progress=self.events.append)
        return self.area.create_download(retry=retry).create_calls("one download")

    @property
    def paces(self) -> list[tuple[int, str]]:
        changes = [event.pace for event in self.events if isinstance(event, PaceChanged)]
        return [(pace.concurrency, pace.cause) for pace in changes]


@pytest.fixture
def paced(caplog: pytest.LogCaptureFixture) -> PacedCalls:
    caplog.set_level(logging.INFO)
    return PacedCalls(MemoryDownloadEnv.with_tiles(40))


def find_records(caplog: pytest.LogCaptureFixture, kind: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.__dict__.get("kind") == kind]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (BUSY, "429"),
        (create_fault(ProviderFault.UNAVAILABLE, status=503), "503"),
        (create_fault(ProviderFault.TIMED_OUT), "timeout"),
    ],
)
def test_overload_lowers_the_pace_and_success_raises_it(
    paced: PacedCalls,
    caplog: pytest.LogCaptureFixture,
    fault: SatelliteProviderError,
    cause: str,
) -> None:
    tiles = paced.area.provider.tiles
    paced.area.provider.faults[tiles[0]] = [fault]
    calls = paced.create()
    fetch_tiles(calls, *tiles)
    assert paced.paces == [(5, cause), (6, cause), (7, cause), (8, "")]
    dropped, recovered = find_records(caplog, "c11.download.pace")
    assert dropped.getMessage() == f"5 of 8 requests at a time, 0.00 s apart: {cause}"
    assert (dropped.__dict__["rule"], dropped.__dict__["concurrency"]) == ("pace", 5)
    assert "full speed again" in recovered.getMessage()


@pytest.mark.parametrize(
    "kind", [ProviderFault.NOT_FOUND, ProviderFault.UNREACHABLE, ProviderFault.DAMAGED]
)
def test_other_faults_do_not_change_the_pace(paced: PacedCalls, kind: ProviderFault) -> None:
    tile = paced.area.provider.tiles[0]
    paced.area.provider.faults[tile] = [create_fault(kind)]
    (result,) = fetch_tiles(paced.create(), tile)
    assert isinstance(result, Exception) is (kind is ProviderFault.NOT_FOUND)
    assert paced.paces == []


def test_pace_survives_the_calls_of_one_download(paced: PacedCalls) -> None:
    download = paced.area.create_download()
    paced.area.provider.faults[paced.area.provider.tiles[0]] = [BUSY]
    fetch_tiles(download.create_calls("first"), paced.area.provider.tiles[0])
    assert download.create_calls("second").pace is download.pace


def test_requests_behind_the_gate_name_it(
    paced: PacedCalls, caplog: pytest.LogCaptureFixture
) -> None:
    calls = paced.create()
    told = create_fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0)
    calls._classify_error(told)  # told to another call, in another thread
    tile = paced.area.provider.tiles[0]
    fetch_tiles(calls, tile)
    held = RequestHeld(operation=f"GET tile {tile}", rule=HoldRule.SOURCE_GATE, delay_s=30.0)
    assert paced.events == [held]
    (record,) = find_records(caplog, "c11.download.held")
    assert record.getMessage() == f"GET tile {tile}: waiting 30.0 s (source gate)"
    assert (record.__dict__["rule"], record.__dict__["sleep_s"]) == ("source_gate", 30.0)


def test_listing_behind_the_gate_waits_as_well(paced: PacedCalls) -> None:
    calls = paced.create()
    calls._classify_error(create_fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0))
    assert len(list(calls.iter_pages(COVERAGE, ListingLimits()))) == 1
    assert paced.area.bench.clock.slept == [30.0]
    held = RequestHeld(operation="GET listing", rule=HoldRule.SOURCE_GATE, delay_s=30.0)
    assert paced.events == [held]


def test_failing_listener_does_not_change_a_call(
    paced: PacedCalls, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_event: ProgressEvent) -> None:
        raise ValueError("no terminal")

    tile = paced.area.provider.tiles[0]
    paced.area.provider.faults[tile] = [BUSY]
    calls = paced.create()
    calls.retry.progress = fail
    (result,) = fetch_tiles(calls, tile)
    assert isinstance(result, FetchedTile)
    assert find_records(caplog, "progress.listener_failed")


@define(eq=False)
class EndlessListing(MemoryProvider):
    """Lists the same tiles on every page."""

    pages: int = 0

    def fetch_listing_page(
        self,
        bbox: BBox,
        zoom_levels: Sequence[int],
        cursor: str | None,  # noqa: ARG002  # it begins anew
    ) -> ListingPage:
        self.pages += 1
        return evolve(super().fetch_listing_page(bbox, zoom_levels, None), next=f"{self.pages}")


COVERAGE = TileCoverage(bbox=BOX, zoom_levels=[ZOOM])


def test_listing_that_repeats_itself_ends() -> None:
    provider = EndlessListing(4)
    calls = PacedCalls(MemoryDownloadEnv(provider)).create()
    with pytest.raises(ResponseSchemaError, match="64 pages in a row without a new tile"):
        list(calls.iter_pages(COVERAGE, ListingLimits()))
    assert provider.pages == 65


def test_slow_listing_ends_at_its_deadline(paced: PacedCalls) -> None:
    paced.area.provider.page_size = 1
    calls = paced.create()

    def list_slowly() -> None:
        for _page in calls.iter_pages(COVERAGE, ListingLimits(deadline_s=10.0)):
            paced.area.bench.clock.advance(1.0)

    with pytest.raises(ResponseSchemaError, match="limit of 10 s for a whole listing"):
        list_slowly()
