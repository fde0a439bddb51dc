"""Stands between a client and the test server, and cuts their connection when it is told to."""

import socket
from enum import Enum, auto
from pathlib import Path

from attrs import define, field
from sqlalchemy.engine import make_url

from support.proxy import Pair, Proxy

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
    _unnoticed: set[Pair] = field(factory=set, init=False)
    _swallowing: set[Pair] = field(factory=set, init=False)
    _asking: set[Pair] = field(factory=set, init=False)
    cuts: int = field(default=0, init=False)
    """How many there were."""
    round_trips: int = field(default=0, init=False)
    """How often a client spoke and then waited for the server."""

    def address_of(self, url: str) -> str:
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

    def _is_left_open(self, pair: Pair) -> bool:
        return pair in self._unnoticed

    def _is_passed_on(self, pair: Pair, data: bytes, *, from_client: bool) -> bool:
        self._count(pair, from_client=from_client)
        if self._is_cut(pair, data, from_client=from_client):
            raise ConnectionAbortedError
        return True

    def _count(self, pair: Pair, *, from_client: bool) -> None:
        with self._lock:
            if not from_client:
                self._asking.discard(pair)
            elif pair not in self._asking:
                self._asking.add(pair)
                self.round_trips += 1

    def _is_cut(self, pair: Pair, data: bytes, *, from_client: bool) -> bool:
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

    def _ended(self, pair: Pair, *, unnoticed: bool = False) -> bool:
        self.cuts += 1
        if unnoticed:
            self._unnoticed.add(pair)
        pair.cut(also_server=not unnoticed)
        return True


def proxy_to(url: str) -> PostgresProxy:
    """Return a proxy in front of the server that a database is on, which runs in a ``with``."""
    query = make_url(url).query
    return PostgresProxy(Path(f"{query['host']}/.s.PGSQL.{query.get('port', '5432')}"))
