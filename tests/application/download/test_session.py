"""A persistent download: passes until the area is complete, or until nothing improves."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, evolve, field
from support.memory_download_env import (
    BOX,
    ZOOM,
    MemoryDownloadEnv,
    create_fault,
    create_request,
)

from tileferry.application import DownloadSettings
from tileferry.application.download.session import PersistentTileDownloader
from tileferry.application.ports.downloads import TileDownloader
from tileferry.application.ports.progress import (
    DownloadFinished,
    DownloadGivenUp,
    DownloadStarted,
    PassScheduled,
    ProgressEvent,
    ProgressListener,
)
from tileferry.domain.audit import RetrySucceeded
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    RateLimitedError,
    SatelliteProviderError,
)
from tileferry.domain.retry import DOWNLOAD_SESSION_POLICY, RetryReason, replay_decision
from tileferry.domain.tiles import DownloadOutcome, ProviderFault

PLAIN = evolve(DOWNLOAD_SESSION_POLICY, jitter_enabled=False)
DOWN = create_fault(ProviderFault.UNAVAILABLE, status=503)
DAMAGED = create_fault(ProviderFault.DAMAGED)
BUSY = create_fault(ProviderFault.RATE_LIMITED, status=429, url="u", retry_after_s=7.0)


@define
class SessionEnv:
    """A session over an area in memory, and the events that it sends."""

    area: MemoryDownloadEnv
    events: list[ProgressEvent] = field(factory=list)

    def create(self, *, settings: DownloadSettings | None = None, **options: Any) -> Any:
        def create_downloader(listener: ProgressListener) -> TileDownloader:
            return self.area.create_download(
                progress=listener, settings=settings or DownloadSettings()
            )

        given: dict[str, Any] = {
            "create_downloader": create_downloader,
            "retry": self.area.bench.create_manager(),
            "clock": self.area.bench.clock,
            "policy": PLAIN,
            "progress": self.events.append,
        }
        return PersistentTileDownloader(**(given | options))

    def find(self, kind: type[ProgressEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def fail(self, index: int | None, *faults: Exception) -> None:
        """Let the provider fail for a tile, or for the listing."""
        tile = None if index is None else self.area.provider.tiles[index]
        self.area.provider.faults[tile] = list(faults)


@pytest.fixture
def env() -> SessionEnv:
    return SessionEnv(MemoryDownloadEnv.with_tiles(4))


def test_session_is_a_downloader(env: SessionEnv) -> None:
    session = env.create()
    assert isinstance(session, TileDownloader)
    assert len(session.enumerate_remote_coverage(BOX, [ZOOM])) == 4


def test_complete_area_takes_one_pass(env: SessionEnv) -> None:
    report = env.create().download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 4)
    assert env.area.bench.clock.slept == []
    assert [event.report for event in env.find(DownloadFinished)] == [report]


def test_failed_tile_is_set_aside_and_fetched_in_a_later_pass(env: SessionEnv) -> None:
    env.fail(1, *[DAMAGED] * 7)
    report = env.create().download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_downloaded) == (DownloadOutcome.SUCCESS, 4)
    assert (report.tiles_reused, report.retry_count, report.failures) == (0, 6, ())
    assert report.bytes_downloaded == sum(
        len(env.area.store.read_tile(tile)) for tile in env.area.provider.tiles
    )
    fetched = env.area.provider.fetched
    assert [fetched.count(tile) for tile in env.area.provider.tiles] == [1, 8, 1, 1]
    (scheduled,) = env.find(PassScheduled)
    assert scheduled == PassScheduled(
        number=2,
        reason="sha256 mismatch",
        rule=RetryReason.BACKOFF,
        tiles_left=1,
        delay_s=2.0,
        gives_up_in_s=1_800.0,
    )
    assert len(env.find(DownloadStarted)) == 2
    assert len(env.find(DownloadFinished)) == 1, "the passes do not count as downloads"


def test_outage_is_waited_out_with_backoff(env: SessionEnv) -> None:
    env.fail(None, *[DOWN] * 13)
    report = env.create().download_tiles_for_area(create_request())
    assert report.outcome is DownloadOutcome.SUCCESS
    assert [event.delay_s for event in env.find(PassScheduled)] == [2.0, 4.0]
    assert [event.reason for event in env.find(PassScheduled)] == ["HTTP 503"] * 2
    assert [event.tiles_left for event in env.find(PassScheduled)] == [0, 0]
    ended = [event for event in env.area.bench.events if isinstance(event, RetrySucceeded)]
    assert {event.policy_name: event.total_attempts for event in ended} == {
        "DOWNLOAD": 4,
        "DOWNLOAD_SESSION": 3,
    }


def test_requested_wait_is_respected_and_counts_as_no_attempt(env: SessionEnv) -> None:
    env.fail(0, *[BUSY] * 4)
    report = env.create().download_tiles_for_area(create_request())
    assert report.outcome is DownloadOutcome.SUCCESS
    assert [event.delay_s for event in env.find(PassScheduled)] == [7.0, 7.0]
    assert {event.rule for event in env.find(PassScheduled)} == {RetryReason.RETRY_AFTER}


def test_improvement_starts_the_backoff_anew(env: SessionEnv) -> None:
    env.fail(None, *[DOWN] * 10)
    env.fail(2, *[DOWN] * 5)
    env.create().download_tiles_for_area(create_request())
    # Two passes cannot list; the third stores two tiles and then fails.
    assert [event.delay_s for event in env.find(PassScheduled)] == [2.0, 4.0, 2.0]
    assert [event.tiles_left for event in env.find(PassScheduled)] == [0, 0, 2]


def test_session_gives_up_when_nothing_improved_and_raises_the_last_error(
    env: SessionEnv,
) -> None:
    env.fail(3, *[DOWN] * 1_000)
    policy = evolve(PLAIN, deadline_s=60.0)
    with pytest.raises(SatelliteProviderError, match="HTTP 503"):
        env.create(policy=policy).download_tiles_for_area(create_request())
    (given_up,) = env.find(DownloadGivenUp)
    assert 30 < given_up.idle_s <= 60
    (finished,) = env.find(DownloadFinished)
    assert (finished.report.outcome, finished.report.tiles_downloaded) == (
        DownloadOutcome.FAILURE,
        3,
    )
    assert finished.report.failures[0].reason == "HTTP 503"


def test_session_that_cannot_list_any_more_keeps_the_counts(env: SessionEnv) -> None:
    env.fail(3, *[DOWN] * 5)

    def break_listing(event: ProgressEvent) -> None:
        env.events.append(event)
        if isinstance(event, PassScheduled) and event.number == 2:
            env.fail(None, *[DOWN] * 1_000)

    policy = evolve(PLAIN, deadline_s=60.0)
    with pytest.raises(SatelliteProviderError):
        env.create(policy=policy, progress=break_listing).download_tiles_for_area(create_request())
    (finished,) = env.find(DownloadFinished)
    report = finished.report
    assert (report.tiles_requested, report.tiles_downloaded, report.tiles_left) == (4, 3, 1)
    assert report.outcome is DownloadOutcome.FAILURE


def test_session_gives_up_on_a_bad_tile_with_a_partial_report(env: SessionEnv) -> None:
    env.fail(1, *[DAMAGED] * 1_000)
    policy = evolve(PLAIN, deadline_s=30.0)
    report = env.create(policy=policy).download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_failed) == (DownloadOutcome.PARTIAL, 1)
    (group,) = report.failures
    assert (group.reason, group.tiles) == ("sha256 mismatch", 1)
    assert group.examples == (str(env.area.provider.tiles[1]),)
    assert len(env.find(DownloadGivenUp)) == 1


def test_missing_tile_is_not_awaited(env: SessionEnv) -> None:
    env.fail(1, create_fault(ProviderFault.NOT_FOUND, status=404))
    report = env.create().download_tiles_for_area(create_request())
    assert (report.outcome, report.tiles_missing) == (DownloadOutcome.SUCCESS, 1)
    assert env.find(PassScheduled) == env.find(DownloadGivenUp) == []


@pytest.mark.parametrize(
    "kind", [ProviderFault.UNAUTHORIZED, ProviderFault.INSECURE, ProviderFault.SCHEMA]
)
def test_error_that_cannot_improve_ends_the_session_at_once(
    env: SessionEnv, kind: ProviderFault
) -> None:
    env.fail(None, create_fault(kind))
    with pytest.raises(SatelliteProviderError):
        env.create().download_tiles_for_area(create_request())
    assert env.find(PassScheduled) == []


def test_full_cache_ends_the_session_at_once(env: SessionEnv) -> None:
    env.area.room.available_bytes = 1
    with pytest.raises(CacheBudgetExceededError):
        env.create().download_tiles_for_area(create_request())
    assert env.area.bench.clock.slept == []


def test_error_before_the_first_report_is_raised(env: SessionEnv) -> None:
    env.area.lock.release()
    with pytest.raises(Exception, match="lock"):
        env.create().download_tiles_for_area(create_request())
    assert env.events == []


def test_limit_on_failed_tiles_ends_the_session(env: SessionEnv) -> None:
    env.fail(0, *[BUSY] * 10)
    settings = DownloadSettings(max_failures_share=0.0)
    session = env.create(settings=settings, ends_on_error=True)
    with pytest.raises(RateLimitedError):
        session.download_tiles_for_area(create_request())
    assert env.find(PassScheduled) == []


def test_interrupt_during_a_wait_ends_the_session(env: SessionEnv) -> None:
    env.fail(1, *[DAMAGED] * 5)

    def interrupt(event: ProgressEvent) -> None:
        env.events.append(event)
        if isinstance(event, PassScheduled):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        env.create(progress=interrupt).download_tiles_for_area(create_request())
    (finished,) = env.find(DownloadFinished)
    assert finished.report.tiles_downloaded == 3


def test_passes_are_audited_replayable_and_spend_no_tokens(
    env: SessionEnv, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    env.fail(None, *[DOWN] * 5)
    env.create().download_tiles_for_area(create_request())
    passes = [
        event
        for event in env.area.bench.retries
        if event.decision_record.policy_name == "DOWNLOAD_SESSION"
    ]
    assert [event.retry_category for event in passes] == ["RETRY_API_REQUEST"]
    assert replay_decision(passes[0].decision_record) is None
    assert passes[0].decision_record.failure.budget_wait_s is None
    assert "download for flight F1: attempt 1 of 1000 failed" in caplog.text


def run_until_complete(create: Callable[[], PersistentTileDownloader]) -> DownloadOutcome:
    return create().download_tiles_for_area(create_request()).outcome


def test_second_session_has_nothing_to_do(env: SessionEnv) -> None:
    assert run_until_complete(env.create) is DownloadOutcome.SUCCESS
    assert run_until_complete(env.create) is DownloadOutcome.IDEMPOTENT_NO_OP
