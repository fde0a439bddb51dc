"""Fetching many tiles at a time: in one thread with libcurl, or with a thread for each request."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias

from attrs import define, field

from tileferry.adapters.http.curl_transfer import CurlTransfer
from tileferry.adapters.http.curl_transport import CurlTransfers, CurlTransport
from tileferry.adapters.http.errors import (
    TRANSLATED,
    call_translating_errors,
    translate_error,
)
from tileferry.adapters.http.responses import find_redirect
from tileferry.adapters.http.session import ProviderSession
from tileferry.adapters.http.transport import Transport, TransportResponse
from tileferry.application.ports.provider import (
    FetchedTile,
    FetchOutcome,
    FetchResult,
    TileFetches,
    TileRequest,
    UnchangedTile,
)
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.tiles import TileId

TileTransport: TypeAlias = Transport | CurlTransport
_Sent: TypeAlias = tuple[TileRequest, Mapping[str, str] | None, int]
"""A request, the headers of its condition, and how many redirects it has followed."""


class TileCalls(Protocol):
    """How a kind of provider sends tile requests and reads responses."""

    @property
    def lane(self) -> TileTransport: ...

    @property
    def session(self) -> ProviderSession: ...

    def take_turn(self) -> float:
        """Return how long the next request must wait for the rate limit."""
        ...

    def build_target(self, request: TileRequest) -> tuple[str, Mapping[str, str] | None]:
        """Return the path of a tile, with its query, and the headers of a conditional request.

        Raises ``SatelliteProviderError`` if the provider cannot have the tile.
        """
        ...

    def read_tile(
        self, tile_id: TileId, answer: TransportResponse, started_s: float
    ) -> FetchedTile | UnchangedTile:
        """Return the tile in a response."""
        ...

    def describe_url(self, tile_id: TileId) -> str:
        """Return the URL of a tile as errors show it."""
        ...


def open_fetches(calls: TileCalls) -> TileFetches:
    """Return fetches that suit the transport."""
    if isinstance(calls.lane, CurlTransport):
        return CurlTileFetches(calls, calls.lane)
    return ThreadedFetches(partial(fetch_tile, calls))


def fetch_tile(calls: TileCalls, request: TileRequest) -> FetchedTile | UnchangedTile:
    """Fetch one tile, after waiting for the rate limit."""
    wait_s = calls.take_turn()
    if wait_s > 0:
        calls.session.clock.sleep(wait_s)
    if not isinstance(calls.lane, CurlTransport):
        path, headers = calls.build_target(request)
        return calls.session.get(
            calls.lane,
            path,
            partial(calls.read_tile, request.tile_id),
            url=partial(calls.describe_url, request.tile_id),
            unless=headers,
        )
    with closing(CurlTileFetches(calls, calls.lane)) as fetches:
        fetches.send(request)
        while not (outcomes := fetches.wait(1.0)):
            pass
    ((_, result),) = outcomes
    if isinstance(result, Exception):
        raise result
    return result


def fetch_document(session: ProviderSession, lane: CurlTransport, url: str, *, shown: str) -> bytes:
    """Return a document that describes a server; errors show ``shown`` instead of its URL."""
    transfers = lane.borrow()

    def call(target: str, hops: int = 0) -> bytes:
        transfers.start(None, target, session.limits, lane.build_headers(None))
        while not (ended := transfers.wait(1.0)):
            pass
        (transfer,) = ended
        try:
            transfer.check_answered()
            found = find_redirect(transfer, session.limits, hops)
            if found is None:
                session.check_status(transfer, is_conditional=False)
                now_s = session.clock.monotonic()
                return session.read_body(transfer, now_s, session.limits.tile_bytes_max)
        finally:
            transfers.release(transfer)
        return call(found, hops + 1)

    try:
        return call_translating_errors(partial(call, url), lambda: shown, secret=session.secret)
    finally:
        lane.give_back(transfers)


@define(eq=False)
class CurlTileFetches:
    """Fetches tiles with libcurl, in the calling thread."""

    _calls: TileCalls
    _lane: CurlTransport
    _transfers: CurlTransfers = field(init=False)
    _later: list[tuple[float, int, _Sent, str]] = field(factory=list, init=False)
    """Requests that wait for the rate limit, and their URLs."""
    _refused: list[FetchOutcome] = field(factory=list, init=False)
    """Requests that need not be sent."""
    _order: Iterator[int] = field(factory=count, init=False)

    @_transfers.default
    def _borrow(self) -> CurlTransfers:
        return self._lane.borrow()

    def start(self, request: TileRequest) -> None:
        """Begin to fetch a tile, after waiting for the rate limit."""
        self._request(request, takes_turn=True)

    def send(self, request: TileRequest) -> None:
        """Begin to fetch a tile now."""
        self._request(request, takes_turn=False)

    def _request(self, request: TileRequest, *, takes_turn: bool) -> None:
        try:
            path, headers = self._calls.build_target(request)
        except SatelliteProviderError as error:
            self._refused.append((request, error))
            return
        self._send_in_turn((request, headers, 0), self._lane.build_url(path), takes_turn=takes_turn)

    def _send_in_turn(self, sent: _Sent, url: str, *, takes_turn: bool = True) -> None:
        wait_s = self._calls.take_turn() if takes_turn else 0.0
        if wait_s > 0:
            heappush(self._later, (time.monotonic() + wait_s, next(self._order), sent, url))
        else:
            self._send(sent, url)

    def _send(self, sent: _Sent, url: str) -> None:
        limits, headers = self._calls.session.limits, self._lane.build_headers(sent[1])
        self._transfers.start(sent, url, limits, headers)

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:
        """Return the tiles and errors that have arrived."""
        if self._later:
            now_s = time.monotonic()
            while self._later and self._later[0][0] <= now_s:
                self._send(*heappop(self._later)[2:])
            if self._later:
                timeout_s = min(timeout_s, self._later[0][0] - now_s)
        if self._refused:
            refused, self._refused = self._refused, []
            return refused
        ended = self._transfers.wait(timeout_s)
        return [outcome for transfer in ended if (outcome := self._read(transfer)) is not None]

    def _read(self, transfer: CurlTransfer) -> FetchOutcome | None:
        """Return the result of a transfer, or ``None`` if it continues elsewhere."""
        assert isinstance(transfer.token, tuple)  # noqa: S101  # set by ``_send``
        request, headers, hops = transfer.token
        calls = self._calls
        redirected = find_redirect(transfer, calls.session.limits, hops)
        if redirected is not None:
            self._transfers.release(transfer)
            self._send_in_turn((request, headers, hops + 1), redirected)
            return None
        result: FetchResult
        try:
            transfer.check_answered()
            calls.session.check_status(transfer, is_conditional=request.unless is not None)
            now_s = calls.session.clock.monotonic()  # its rate was checked while it arrived
            result = calls.read_tile(request.tile_id, transfer, now_s)
        except TRANSLATED as error:
            url = calls.describe_url(request.tile_id)
            result = translate_error(error, url, secret=calls.session.secret)
        except Exception as error:  # noqa: BLE001  # returned as the result
            result = error
        self._transfers.release(transfer)
        return request, result

    def close(self) -> None:
        """Abort the requests in progress; the other connections are kept for later."""
        self._later.clear()
        self._lane.give_back(self._transfers)


@define(eq=False)
class ThreadedFetches:
    """Fetches tiles in several threads, one tile at a time in each."""

    _fetch: Callable[[TileRequest], FetchedTile | UnchangedTile]
    _inbox: SimpleQueue[TileRequest | None] = field(factory=SimpleQueue, init=False)
    _outbox: SimpleQueue[FetchOutcome] = field(factory=SimpleQueue, init=False)
    _threads: int = field(default=0, init=False)
    _in_progress: int = field(default=0, init=False)

    def start(self, request: TileRequest) -> None:
        """Give a tile to a thread."""
        self._in_progress += 1
        if self._in_progress > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name="tileferry-call", daemon=True).start()
        self._inbox.put(request)

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:
        """Return the next tile or error."""
        try:
            outcome = self._outbox.get(timeout=timeout_s)
        except Empty:
            return []
        self._in_progress -= 1
        return [outcome]

    def close(self) -> None:
        """End the threads; those that wait for an answer end with it."""
        for _ in range(self._threads):
            self._inbox.put(None)

    def _work(self) -> None:
        while (request := self._inbox.get()) is not None:
            result: FetchResult
            try:
                result = self._fetch(request)
            except Exception as error:  # noqa: BLE001  # returned as the result
                result = error
            self._outbox.put((request, result))
