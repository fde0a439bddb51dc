"""Stands between a client and the test server, and cuts their connection when it is told to."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path

from attrs import define, field, frozen
from sqlalchemy.engine import make_url

COMMIT = b"COMMIT\x00"
CHUNK_BYTES = 65_536


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


@frozen(eq=False)
class _Pair:
    """A client's connection, and the one that was made to the server for it."""

    client: socket.socket
    server: socket.socket

    def cut(self, *, also_server: bool = True) -> None:
        for end in (self.client, self.server) if also_server else (self.client,):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@define(eq=False)
class PostgresProxy:
    """Passes everything on until an armed cut is reached; each cut happens once."""

    server_socket: Path
    _listener: socket.socket = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _threads: list[threading.Thread] = field(factory=list, init=False)
    _pairs: list[_Pair] = field(factory=list, init=False)
    _cut: Cut | None = field(default=None, init=False)
    _cut_at: bytes = field(default=COMMIT, init=False)
    _chunks_left: int | None = field(default=None, init=False)
    _is_refusing: bool = field(default=False, init=False)
    _unnoticed: set[_Pair] = field(factory=set, init=False)
    _swallowing: set[_Pair] = field(factory=set, init=False)
    _asking: set[_Pair] = field(factory=set, init=False)
    cuts: int = field(default=0, init=False)
    """How many there were."""
    round_trips: int = field(default=0, init=False)
    """How often a client spoke and then waited for the server."""

    @_listener.default
    def _listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def address_of(self, url: str) -> str:
        """Return the address at which a database of the server is reached through here."""
        port = self._listener.getsockname()[1]
        through = make_url(url).set(host="127.0.0.1", port=port, query={"sslmode": "disable"})
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

    def start(self) -> None:
        self._spawn(self._accept)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            pair.cut()
        for thread in self._threads:
            thread.join(timeout=10)
        for pair in self._pairs:
            pair.client.close()
            pair.server.close()

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
            if self._is_refusing:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self.server_socket))
            pair = _Pair(client, server)
            self._pairs.append(pair)
            self._spawn(partial(self._pump, pair, from_client=True))
            self._spawn(partial(self._pump, pair, from_client=False))

    def _pump(self, pair: _Pair, *, from_client: bool) -> None:
        source, target = (pair.client, pair.server) if from_client else (pair.server, pair.client)
        try:
            while data := source.recv(CHUNK_BYTES):
                self._count(pair, from_client=from_client)
                if self._is_cut(pair, data, from_client=from_client):
                    return
                target.sendall(data)
        except OSError:
            pass
        if pair not in self._unnoticed:
            pair.cut()

    def _count(self, pair: _Pair, *, from_client: bool) -> None:
        with self._lock:
            if not from_client:
                self._asking.discard(pair)
            elif pair not in self._asking:
                self._asking.add(pair)
                self.round_trips += 1

    def _is_cut(self, pair: _Pair, data: bytes, *, from_client: bool) -> bool:
        with self._lock:
            if self._chunks_left is not None:
                self._chunks_left -= 1
                if self._chunks_left < 0:
                    self._chunks_left = None
                    return self._ended(pair)
            if from_client and self._cut is not None and self._cut_at in data:
                cut, self._cut = self._cut, None
                if cut is Cut.AFTER_COMMIT:
                    self._swallowing.add(pair)
                    return False
                if cut is Cut.DELIVERED:
                    pair.server.sendall(data)
                return self._ended(pair, unnoticed=cut in {Cut.UNNOTICED, Cut.DELIVERED})
            if not from_client and pair in self._swallowing:
                return self._ended(pair)
            return False

    def _ended(self, pair: _Pair, *, unnoticed: bool = False) -> bool:
        self.cuts += 1
        if unnoticed:
            self._unnoticed.add(pair)
        pair.cut(also_server=not unnoticed)
        return True


@contextmanager
def proxy_to(url: str) -> Iterator[PostgresProxy]:
    """Run a proxy in front of the server that a database is on."""
    query = make_url(url).query
    proxy = PostgresProxy(Path(f"{query['host']}/.s.PGSQL.{query.get('port', '5432')}"))
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
