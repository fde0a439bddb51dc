"""Fetches tiles, several at a time, at the provider's pace; each is retried by its policy.

A tile that waits for its retry holds no request, and no thread.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from attrs import define, evolve, field, frozen

from tileferry.application.download.provider_calls import ProviderCalls, keep_pace
from tileferry.application.ports.provider import FetchResult, TileFetches, TileRequest
from tileferry.application.retries.driver import Attempts
from tileferry.domain.tiles import TileId, TileSummary, TileValidators

WAIT_S = 0.1
"""Maximum wait for results; bounds the delay of a cancellation and of a newly free place."""


@frozen
class TileResult:
    """A tile, or the error of its last attempt."""

    listed: TileSummary
    tile: FetchResult
    others_answered: bool
    """Whether the provider delivered other tiles after this one was first requested."""


def name_fetch(tile_id: TileId) -> str:
    """Return the name of a tile's fetch in the audit log."""
    return f"GET tile {tile_id}"


@define(eq=False)
class _TileCall(TileRequest):
    """A tile until its result is final."""

    listed: TileSummary
    begun_s: float
    delivered_before: int
    """How many tiles the provider had delivered when this one was first requested."""
    started_s: float = 0.0
    """The start of the current attempt."""
    attempts: int = 0
    retry: Attempts | None = None

    @property
    def operation(self) -> str:
        return name_fetch(self.tile_id)


_Timed = tuple[float, int, _TileCall]


@define(eq=False)
class TileFetcher:
    """The fetches of one download; a ``FetchRunner`` runs their steps."""

    calls: ProviderCalls
    wanted: Iterator[tuple[TileSummary, TileValidators | None]]
    """Read on demand, by the thread that runs the steps."""
    _fetches: TileFetches | None = field(default=None, init=False)
    _places: int = field(default=0, init=False)
    """Requests that count against the pace: those without an answer, and those held."""
    _held: list[_Timed] = field(factory=list, init=False)
    """Requests that wait for the pace or a rate limit."""
    _waiting: list[_Timed] = field(factory=list, init=False)
    """Tiles that wait for a retry."""
    _order: Iterator[int] = field(factory=count, init=False)
    """Breaks ties between equal times."""
    _delivered: int = field(default=0, init=False)
    _exhausted: bool = field(default=False, init=False)
    _room_max: int = field(default=0, init=False)
    _slept_until_s: float = field(default=0.0, init=False)
    """Never treat time before this as now, even if the clock lags after a sleep."""
    _has_results: bool = field(default=False, init=False)
    """Whether results may wait in the runner: a long wait must not delay them."""
    _cancelled: bool = field(default=False, init=False)

    def step(self, room: int) -> Sequence[TileResult] | float | None:
        """Start the requests that may start now, and return the results that have arrived."""
        if self._fetches is None:
            self._fetches = self.calls.provider.open_fetches()
        self._room_max = max(room, self._room_max)
        is_refused = self._start_all(self._fetches, room)
        wait_s = self._compute_wait_s(is_refused=is_refused)
        if self._places > len(self._held):
            return self._collect(self._fetches, min(wait_s, WAIT_S))
        if self._exhausted and not self._held and not self._waiting:
            return None
        if not self._exhausted and room < self._room_max:
            return wait_s
        if self._has_results:  # a runner hands them over after a step without results
            self._has_results = False
            return []
        self._slept_until_s = self._get_now_s() + wait_s
        self.calls.clock.sleep(wait_s)
        return []

    def _compute_wait_s(self, *, is_refused: bool) -> float:
        """Return how long there is nothing to start.

        A retry that the pace refused waits for a free place. If another download shares the pace,
        it does not report when it frees a place, so the wait is bounded.
        """
        due = [heap[0][0] for heap in (self._held, () if is_refused else self._waiting) if heap]
        return WAIT_S if not due else max(0.0, min(due) - self._get_now_s())

    def cancel(self) -> None:
        """Discard later results."""
        self._cancelled = True

    def close(self) -> None:
        """Abort the requests that have not been answered."""
        if self._fetches is not None:
            self._fetches.close()
        for _ in range(self._places):
            self.calls.pace.end_request(keep_pace)

    def _get_now_s(self) -> float:
        return max(self.calls.clock.monotonic(), self._slept_until_s)

    def _start_all(self, fetches: TileFetches, room: int) -> bool:
        """Start all requests that may start; return whether the pace refused one."""
        now_s = self._get_now_s()
        while self._held and self._held[0][0] <= now_s:
            self._send(fetches, heappop(self._held)[2], now_s)
        while True:
            is_retry = bool(self._waiting) and self._waiting[0][0] <= now_s
            under_way = self._places + len(self._waiting)
            if not is_retry and (self._exhausted or under_way >= room):
                return False
            start_s = self.calls.pace.try_begin_request()
            if start_s is None:
                return True
            now_s = self._get_now_s()  # after the start: otherwise each request would be held
            self._places += 1
            call = heappop(self._waiting)[2] if is_retry else self._take_next(now_s)
            if call is None:
                self._exhausted = True
                self._places -= 1
                self.calls.pace.end_request(keep_pace)
                continue
            call.attempts += 1
            call.started_s = start_s
            if start_s > now_s:
                heappush(self._held, (start_s, next(self._order), call))
            else:
                self._send(fetches, call, now_s)

    def _take_next(self, now_s: float) -> _TileCall | None:
        wanted = next(self.wanted, None)
        if wanted is None:
            return None
        listed, unless = wanted
        call = _TileCall(listed.tile_id, unless, listed, now_s, self._delivered)
        if self.calls.retry.telemetry is not None:  # telemetry observes successful calls as well
            call.retry = self.calls.begin_attempts(call.operation, now_s)
        return call

    def _send(self, fetches: TileFetches, call: _TileCall, now_s: float) -> None:
        """Send a request, or hold it while the provider limits the rate."""
        wait_s = self.calls.opens_at_s - now_s
        if wait_s > 0:
            self.calls.report_held(call.operation, wait_s)
            heappush(self._held, (now_s + wait_s, next(self._order), call))
        else:
            fetches.start(call)

    def _collect(self, fetches: TileFetches, timeout_s: float) -> list[TileResult]:
        results = []
        for call, result in fetches.wait(timeout_s):
            if self._cancelled:
                break
            assert isinstance(call, _TileCall)  # noqa: S101  # set by ``_send``
            self._places -= 1
            final = self._finish(call, result)
            if final is not None:
                results.append(final)
        self._has_results |= bool(results)
        return results

    def _finish(self, call: _TileCall, result: FetchResult) -> TileResult | None:
        """Return a tile's result, or ``None`` if it is tried again."""
        calls = self.calls
        if isinstance(result, Exception):
            calls.end_request(call.started_s, result)
            try:
                self._retry_later(call, result)
            except Exception as error:  # noqa: BLE001  # the storing thread handles it
                return TileResult(call.listed, error, self._delivered > call.delivered_before)
            return None
        calls.end_request(call.started_s, None)
        self._delivered += 1
        if call.retry is not None:
            call.retry.notify_success()
        elif calls.retry.tokens is not None:
            calls.retry.tokens.note_success()
        tile = result if call.attempts == 1 else evolve(result, attempts=call.attempts)
        return TileResult(call.listed, tile, others_answered=True)

    def _retry_later(self, call: _TileCall, error: Exception) -> None:
        """Schedule the next attempt, or raise the final error."""
        if call.retry is None:
            call.retry = self.calls.begin_attempts(call.operation, call.begun_s)
        delay_s = self.calls.get_retry_delay(call.retry, error)
        due_s = self._get_now_s() + delay_s
        heappush(self._waiting, (due_s, next(self._order), call))
