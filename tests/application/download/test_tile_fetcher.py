"""Fetching tiles: several at a time, at the pace, with retries that hold up no other tile."""

import errno
from collections.abc import Callable, Iterator, Sequence

import pytest
from attrs import define, field
from support.managers import TelemetryRecorder
from support.memory_download_env import MemoryDownloadEnv, MemoryProvider, create_fault, fetch_tiles

from tileferry.adapters.memory import ManualClock, SequentialFetches
from tileferry.application.download.provider_calls import ProviderCalls
from tileferry.application.download.tile_fetcher import WAIT_S, TileFetcher, TileResult
from tileferry.application.ports.provider import FetchedTile, FetchOutcome, TileFetches, TileRequest
from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.retry import Pace
from tileferry.domain.tiles import ProviderFault, TileId, TileSummary, TileValidators

UNAVAILABLE = ProviderFault.UNAVAILABLE


@define(eq=False)
class PendingFetches:
    """Answers when the test says so."""

    fetches: SequentialFetches
    pending: list[TileRequest] = field(factory=list)
    answered: int = 0
    """How many may be answered."""
    closed: bool = False
    on_wait: Callable[[], object] = lambda: None
    timeouts_s: list[float] = field(factory=list)

    def start(self, request: TileRequest) -> None:
        self.pending.append(request)

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:
        self.on_wait()
        self.timeouts_s.append(timeout_s)
        if not (self.pending and self.answered):
            return []
        self.answered -= 1
        self.fetches.start(self.pending.pop(0))
        return self.fetches.wait(timeout_s)

    def close(self) -> None:
        self.closed = True


@define(eq=False)
class PendingProvider(MemoryProvider):
    """Gives out these fetches."""

    fetches: PendingFetches = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.fetches = PendingFetches(SequentialFetches(self.fetch_tile))

    def open_fetches(self) -> TileFetches:
        return self.fetches


@define(eq=False)
class FetcherEnv:
    """A fetcher whose provider answers when told, step by step."""

    area: MemoryDownloadEnv
    calls: ProviderCalls
    fetcher: TileFetcher
    fetches: PendingFetches

    @classmethod
    def create(cls, count: int, **options: object) -> "FetcherEnv":
        provider = PendingProvider(count)
        area = MemoryDownloadEnv(provider)
        download = area.create_download(**options)
        calls = download.create_calls("one download")
        wanted = ((area.provider.create_summary(tile), None) for tile in area.provider.tiles)
        return cls(area, calls, TileFetcher(calls, wanted), provider.fetches)

    @property
    def clock(self) -> ManualClock:
        return self.area.bench.clock

    @property
    def pending(self) -> list[TileId]:
        return [request.tile_id for request in self.fetches.pending]

    def answer(self, count: int = 1, *, room: int = 64) -> list[TileResult]:
        """Let the provider answer, and return the results."""
        self.fetches.answered = count
        results: list[TileResult] = []
        while self.fetches.answered:
            found = self.fetcher.step(room)
            assert isinstance(found, list)
            results += found
        return results


def test_as_many_tiles_are_requested_as_the_pace_allows() -> None:
    env = FetcherEnv.create(40)
    tiles = env.area.provider.tiles
    assert env.fetcher.step(64) == []
    assert env.pending == tiles[:8]
    assert [result.listed.tile_id for result in env.answer(2)] == tiles[:2]
    assert env.fetcher.step(64) == []
    assert env.pending == tiles[2:10]


def test_request_is_not_held_because_time_passes() -> None:
    class TickingClock(ManualClock):
        def monotonic(self) -> float:
            self.advance(1e-6)
            return super().monotonic()

    provider = PendingProvider(8)
    area = MemoryDownloadEnv(provider)
    area.bench.clock = TickingClock()
    calls = area.create_download().create_calls("one download")
    wanted = ((provider.create_summary(tile), None) for tile in provider.tiles)
    assert TileFetcher(calls, wanted).step(64) == []
    assert len(provider.fetches.pending) == 8


def test_no_more_tiles_are_in_progress_than_there_is_room_for() -> None:
    env = FetcherEnv.create(40)
    assert env.fetcher.step(3) == []
    assert len(env.pending) == 3
    env.answer(3, room=0)
    assert len(env.pending) == 0
    assert env.fetcher.step(0) == WAIT_S, "the caller must make room"
    assert env.clock.slept == []
    assert env.fetcher.step(1) == []
    assert len(env.pending) == 1


def test_waiting_retry_does_not_delay_other_tiles() -> None:
    env = FetcherEnv.create(3)
    first, *others = env.area.provider.tiles
    env.area.provider.faults[first] = [create_fault(UNAVAILABLE)]
    results = env.answer(3)
    assert [result.listed.tile_id for result in results] == others
    assert env.fetcher.step(64) == []
    assert env.clock.slept == [], "the results are handed over first"
    assert env.fetcher.step(64) == []  # it sleeps until the retry is due
    assert env.clock.slept == [1.0]
    (result,) = env.answer()
    assert isinstance(result.tile, FetchedTile)
    assert (result.tile.tile_id, result.tile.attempts) == (first, 2)
    assert env.fetcher.step(64) is None


def test_retry_that_is_due_goes_before_a_new_tile() -> None:
    env = FetcherEnv.create(4)
    first, second, third, _ = env.area.provider.tiles
    env.area.provider.faults[first] = [create_fault(UNAVAILABLE)]
    assert env.fetcher.step(2) == []
    assert env.answer(room=2) == []
    assert env.fetcher.step(2) == []
    assert env.pending == [second], "the tile that waits is in progress"
    env.clock.advance(1.0)
    assert env.fetcher.step(2) == []
    assert env.pending == [second, first]
    env.answer(room=2)
    env.fetcher.step(2)
    assert env.pending == [first, third]


def test_retry_that_is_due_waits_for_a_place_without_a_busy_loop() -> None:
    env = FetcherEnv.create(9)
    first = env.area.provider.tiles[0]
    env.area.provider.faults[first] = [create_fault(UNAVAILABLE)]
    env.answer()
    env.fetcher.step(64)
    assert first not in env.pending
    env.clock.advance(5.0)
    env.fetcher.step(64)
    assert env.fetches.timeouts_s[-1] == WAIT_S


def test_tiles_that_wait_can_fill_all_room() -> None:
    env = FetcherEnv.create(3)
    for tile in env.area.provider.tiles:
        env.area.provider.faults[tile] = [create_fault(UNAVAILABLE)]
    assert env.answer(2, room=2) == []
    assert env.fetcher.step(2) == []
    assert env.clock.slept == [1.0]


def test_clock_that_does_not_advance_does_not_stop_retries() -> None:
    class StoppedClock(ManualClock):
        def advance(self, seconds: float) -> None:
            """Stay."""

    area = MemoryDownloadEnv.with_tiles(2)
    area.bench.clock = StoppedClock()
    for tile in area.provider.tiles:
        area.provider.faults[tile] = [create_fault(UNAVAILABLE)] * 2
    calls = area.create_download().create_calls("one download")
    results = fetch_tiles(calls, *area.provider.tiles, items_max=2)
    assert all(isinstance(result, FetchedTile) for result in results)
    assert sum(area.bench.clock.slept) == pytest.approx(3.0)


def test_gate_holds_all_requests_and_their_places() -> None:
    env = FetcherEnv.create(10)
    env.calls._classify_error(create_fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0))
    assert env.fetcher.step(64) == []
    assert (env.pending, env.clock.slept) == ([], [30.0])
    assert env.calls.pace.try_begin_request() is None
    env.fetcher.step(64)
    assert len(env.pending) == 8


def test_gate_that_closes_meanwhile_holds_a_request_again() -> None:
    env = FetcherEnv.create(1)
    busy = create_fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0)
    env.calls._classify_error(busy)
    env.fetcher.step(64)
    env.calls._classify_error(busy)
    env.fetcher.step(64)
    assert (env.pending, env.clock.slept) == ([], [30.0, 30.0])


def test_requests_start_apart_at_a_low_pace() -> None:
    env = FetcherEnv.create(3)
    env.calls.pace.try_begin_request()
    env.calls.pace.end_request(lambda _: Pace(concurrency_max=8, level=0.5, cause="429"))
    env.fetcher.step(64)
    env.answer()
    for _ in range(2):  # the result is handed over first
        env.fetcher.step(64)
    assert env.pending == []
    assert env.clock.slept == pytest.approx([0.1])
    env.fetcher.step(64)
    assert len(env.pending) == 1


def test_places_of_another_download_are_waited_for() -> None:
    env = FetcherEnv.create(1)
    for _ in range(8):
        env.calls.pace.begin_request()
    assert env.fetcher.step(64) == []
    assert (env.pending, env.clock.slept) == ([], [WAIT_S])
    env.calls.end_request(0.0, None)
    env.fetcher.step(64)
    assert len(env.pending) == 1


@pytest.mark.parametrize("answers", [[UNAVAILABLE], []], ids=["a fault", "a tile"])
def test_result_after_the_cancellation_is_neither_retried_nor_audited(
    answers: list[ProviderFault],
) -> None:
    env = FetcherEnv.create(1)
    (tile,) = env.area.provider.tiles
    env.area.provider.faults[tile] = [create_fault(fault) for fault in answers]
    env.fetches.on_wait = env.fetcher.cancel
    assert env.answer() == []
    assert list(env.area.bench.sink.events) == []


def test_close_aborts_requests_and_frees_their_places() -> None:
    env = FetcherEnv.create(20)
    env.fetcher.close()
    env.calls._classify_error(create_fault(ProviderFault.RATE_LIMITED, retry_after_s=30.0))
    env.fetcher.step(4)
    env.fetcher.step(8)
    assert (len(env.pending), env.fetches.closed) == (8, False)
    env.fetcher.close()
    assert env.fetches.closed
    assert [env.calls.pace.try_begin_request() for _ in range(9)][-2:] == [30.0, None]


def test_failing_spool_frees_the_place_of_its_request() -> None:
    env = FetcherEnv.create(1)
    first = next(env.fetcher.wanted)

    def read_spool() -> Iterator[tuple[TileSummary, TileValidators | None]]:
        yield first
        raise OSError(errno.EIO, "the disk fails")

    env.fetcher.wanted = read_spool()
    with pytest.raises(OSError, match="the disk fails"):
        env.fetcher.step(8)
    env.fetcher.close()
    assert None not in [env.calls.pace.try_begin_request() for _ in range(8)]


def test_telemetry_observes_every_tile() -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    first, second = area.provider.tiles
    area.provider.faults[first] = [create_fault(UNAVAILABLE)]
    recorder = TelemetryRecorder()
    retry = area.bench.create_manager(telemetry=recorder)
    fetch_tiles(area.create_download(retry=retry).create_calls("one"), first, second)
    assert recorder.told == [
        ("RETRY_API_REQUEST", f"GET tile {first}", "one"),
        "SatelliteProviderError",
        2,
        ("RETRY_API_REQUEST", f"GET tile {second}", "one"),
        1,
    ]


def test_final_error_has_the_attempts_and_whether_others_were_answered() -> None:
    env = FetcherEnv.create(2)
    first, second = env.area.provider.tiles
    env.area.provider.faults[first] = [create_fault(UNAVAILABLE)] * 5
    env.area.provider.faults[second] = [create_fault(ProviderFault.NOT_FOUND)]
    (missing,) = env.answer(2)
    assert not missing.others_answered
    for _ in range(3):
        env.fetcher.step(64)
        assert env.answer() == []
    env.fetcher.step(64)
    (result,) = env.answer()
    assert isinstance(result.tile, SatelliteProviderError)
    assert (result.tile.attempts, result.others_answered) == (5, False)


def test_tile_delivered_meanwhile_counts_as_an_answer_to_others() -> None:
    area = MemoryDownloadEnv.with_tiles(2)
    busy = create_fault(ProviderFault.RATE_LIMITED, url="https://tiles", retry_after_s=7.0)
    area.provider.faults[area.provider.tiles[0]] = [busy] * 2
    calls = area.create_download().create_calls("one")
    wanted = ((area.provider.create_summary(tile), None) for tile in area.provider.tiles)
    fetcher = TileFetcher(calls, wanted)
    results = []
    while (found := fetcher.step(2)) is not None:
        assert isinstance(found, list)
        results += found
    delivered, limited = results
    assert isinstance(delivered.tile, FetchedTile)
    assert isinstance(limited.tile, RateLimitedError)
    assert limited.others_answered


def test_retry_budget_is_credited_for_each_tile() -> None:
    class Tokens:
        credited = 0

        def note_success(self) -> None:
            self.credited += 1

    area, tokens = MemoryDownloadEnv.with_tiles(3), Tokens()
    retry = area.bench.create_manager(tokens=tokens)
    fetch_tiles(area.create_download(retry=retry).create_calls("one"), *area.provider.tiles)
    assert tokens.credited == 3


def test_error_of_a_classifier_is_the_result_of_the_tile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    (tile,) = area.provider.tiles
    area.provider.faults[tile] = [create_fault(UNAVAILABLE)]
    calls = area.create_download().create_calls("one")
    monkeypatch.setattr(ProviderCalls, "_classify_error", lambda *_: 1 // 0)
    (result,) = fetch_tiles(calls, tile)
    assert isinstance(result, ZeroDivisionError)
