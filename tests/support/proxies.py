"""Stands between a client and a server, and passes on what goes by."""

import contextlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Self

from attrs import define, field, frozen
from sqlalchemy.engine import make_url

CHUNK_BYTES = 65_536
_PATIENCE_S = 10.0


@frozen(eq=False)
class ConnectionPair:
    """A client's connection, and the one that was made to the server for it."""

    client: socket.socket
    server: socket.socket

    def cut(self, *, also_server: bool = True) -> None:
        for end in (self.client, self.server) if also_server else (self.client,):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@define(eq=False)
class Proxy(ABC):
    """Takes connections and pumps bytes; what is turned away, held back or cut is its kind's."""

    _listener: socket.socket = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)
    _pairs: list[ConnectionPair] = field(factory=list, init=False)

    @_listener.default
    def _listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.cut()
        for thread in self._threads:
            thread.join(timeout=_PATIENCE_S)
        for pair in self._pairs:
            pair.client.close()
            pair.server.close()

    @abstractmethod
    def _connect(self) -> socket.socket:
        """Connect to the server."""

    @abstractmethod
    def _is_refused(self) -> bool:
        """Tell whether the next connection is turned away."""

    @abstractmethod
    def _is_passed_on(self, pair: ConnectionPair, data: bytes, *, from_client: bool) -> bool:
        """Tell whether the other side gets this; an ``OSError`` ends the connection."""

    def _is_left_open(self, _pair: ConnectionPair) -> bool:
        """Tell whether one side is kept although the other has gone."""
        return False

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_refused():
                client.close()
                continue
            pair = ConnectionPair(client, self._connect())
            self._pairs.append(pair)
            self._spawn(partial(self._pump, pair, from_client=True))
            self._spawn(partial(self._pump, pair, from_client=False))

    def _pump(self, pair: ConnectionPair, *, from_client: bool) -> None:
        source, target = (pair.client, pair.server) if from_client else (pair.server, pair.client)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._is_passed_on(pair, data, from_client=from_client):
                    target.sendall(data)
        if not self._is_left_open(pair):
            pair.cut()


_SERVER_S = 0.1
"""What a server needs at most to take a request in."""


class Loss(Enum):
    """What is lost of a request."""

    REQUEST = auto()
    """The server never gets it: the connection ends before."""
    ANSWER = auto()
    """The server gets it and answers; the connection ends before the answer."""
    SILENT_ANSWER = auto()
    """As before, but the connection stays: the client waits in vain."""
    LATE = auto()
    """The connection ends, and the server gets it all the same: right before the next one."""


@define(eq=False)
class NatsProxy(Proxy):
    """Passes everything on, but for the losses that were asked for."""

    server_port: int
    _armed: list[tuple[bytes, Loss]] = field(factory=list, init=False)
    _deaf: dict[ConnectionPair, Loss] = field(factory=dict, init=False)
    _late: tuple[ConnectionPair, bytes, bytes] | None = field(default=None, init=False)
    _refusals: int = field(default=0, init=False)
    losses: int = field(default=0, init=False)
    """How many there were."""
    sent_bytes: int = field(default=0, init=False)
    """What clients have sent."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def lose(self, marker: bytes, loss: Loss, *, times: int = 1) -> None:
        """Lose the next requests in which the marker stands, or their answers."""
        with self._lock:
            self._armed += [(marker, loss)] * times

    def refuse(self, times: int) -> None:
        """Turn the next connections away."""
        with self._lock:
            self._refusals = times

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server_port))

    def _is_refused(self) -> bool:
        with self._lock:
            refused, self._refusals = self._refusals > 0, max(self._refusals - 1, 0)
        return refused

    def _is_left_open(self, pair: ConnectionPair) -> bool:
        return self._late is not None and self._late[0] is pair

    def _is_passed_on(self, pair: ConnectionPair, data: bytes, *, from_client: bool) -> bool:
        with self._lock:
            if not from_client:
                return self._is_answer_passed_on(pair)
            self.sent_bytes += len(data)
            self._deaf.pop(pair, None)
            self._deliver_late(data)
            if not self._armed or self._armed[0][0] not in data:
                return True
            marker, loss = self._armed.pop(0)
            self.losses += 1
            if loss in {Loss.ANSWER, Loss.SILENT_ANSWER}:
                self._deaf[pair] = loss
                return True
            if loss is Loss.LATE:
                self._late = (pair, marker, data)
                with contextlib.suppress(OSError):
                    pair.client.shutdown(socket.SHUT_RDWR)
                return False
        pair.cut()
        return False

    def _deliver_late(self, data: bytes) -> None:
        if self._late is not None and self._late[1] in data:
            (pair, _, late), self._late = self._late, None
            pair.server.sendall(late)
            time.sleep(_SERVER_S)
            pair.cut()

    def _is_answer_passed_on(self, pair: ConnectionPair) -> bool:
        loss = self._deaf.get(pair)
        if loss is Loss.ANSWER:
            pair.cut()
        return loss is None


def create_nats_proxy(port: int) -> NatsProxy:
    """Return a proxy in front of a server, which runs in a ``with``."""
    return NatsProxy(port)


COMMIT = b"COMMIT\x00"


class Cut(Enum):
    """Where a connection ends that is about to commit, or to run a statement."""

    BEFORE_COMMIT = auto()
    """The server never hears of the COMMIT, and sees the client go."""
    UNNOTICED = auto()
    """The server never hears of the COMMIT, and believes that the client is still there."""
    AFTER_COMMIT = auto()
    """The server commits and answers; the client never hears of it."""
    DELIVERED = auto()
    """The server gets it and is at it, and has not noticed that the client was cut off."""


@define(eq=False)
class PostgresProxy(Proxy):
    """Passes everything on until an armed cut is reached; each cut happens once."""

    server_socket: Path
    _cut: Cut | None = field(default=None, init=False)
    _cut_at: bytes = field(default=COMMIT, init=False)
    _chunks_left: int | None = field(default=None, init=False)
    _is_refusing: bool = field(default=False, init=False)
    _unnoticed: set[ConnectionPair] = field(factory=set, init=False)
    _swallowing: set[ConnectionPair] = field(factory=set, init=False)
    _asking: set[ConnectionPair] = field(factory=set, init=False)
    cuts: int = field(default=0, init=False)
    """How many there were."""
    round_trips: int = field(default=0, init=False)
    """How often a client spoke and then waited for the server."""

    def get_proxied_url(self, url: str) -> str:
        """Return the address at which a database of the server is reached through here."""
        query = {"sslmode": "disable"}
        through = make_url(url).set(host="127.0.0.1", port=self.port, query=query)
        return through.render_as_string(hide_password=False)

    def cut_at_commit(self, cut: Cut) -> None:
        """End the next connection that commits."""
        self.cut_at(COMMIT, cut)

    def cut_at(self, words: bytes, cut: Cut) -> None:
        """End the next connection that says these words, such as the name of a table."""
        with self._lock:
            self._cut, self._cut_at = cut, words

    def cut_after(self, chunks: int | None) -> None:
        """End the connection that wants to send one more, once so many chunks were passed on."""
        with self._lock:
            self._chunks_left = chunks

    def refuse(self, *, refusing: bool = True) -> None:
        """Turn new connections away, or take them again."""
        with self._lock:
            self._is_refusing = refusing

    def _connect(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self.server_socket))
        return server

    def _is_refused(self) -> bool:
        return self._is_refusing

    def _is_left_open(self, pair: ConnectionPair) -> bool:
        return pair in self._unnoticed

    def _is_passed_on(self, pair: ConnectionPair, data: bytes, *, from_client: bool) -> bool:
        self._count(pair, from_client=from_client)
        if self._is_cut(pair, data, from_client=from_client):
            raise ConnectionAbortedError
        return True

    def _count(self, pair: ConnectionPair, *, from_client: bool) -> None:
        with self._lock:
            if not from_client:
                self._asking.discard(pair)
            elif pair not in self._asking:
                self._asking.add(pair)
                self.round_trips += 1

    def _is_cut(self, pair: ConnectionPair, data: bytes, *, from_client: bool) -> bool:
        with self._lock:
            if self._chunks_left is not None:
                self._chunks_left -= 1
                if self._chunks_left < 0:
                    self._chunks_left = None
                    return self._end_connection(pair)
            if from_client and self._cut is not None and self._cut_at in data:
                cut, self._cut = self._cut, None
                if cut is Cut.AFTER_COMMIT:
                    self._swallowing.add(pair)
                    return False
                if cut is Cut.DELIVERED:
                    pair.server.sendall(data)
                return self._end_connection(pair, unnoticed=cut in {Cut.UNNOTICED, Cut.DELIVERED})
            if not from_client and pair in self._swallowing:
                return self._end_connection(pair)
            return False

    def _end_connection(self, pair: ConnectionPair, *, unnoticed: bool = False) -> bool:
        self.cuts += 1
        if unnoticed:
            self._unnoticed.add(pair)
        pair.cut(also_server=not unnoticed)
        return True


def create_postgres_proxy(url: str) -> PostgresProxy:
    """Return a proxy in front of the server that a database is on, which runs in a ``with``."""
    return PostgresProxy(find_server_socket(url))


def find_server_socket(url: str) -> Path:
    """Return the socket of the server that a database is on."""
    query = make_url(url).query
    return Path(f"{query['host']}/.s.PGSQL.{query.get('port', '5432')}")
