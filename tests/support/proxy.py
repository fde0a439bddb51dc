"""Stands between a client and a server, and passes on what goes by."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Self

from attrs import define, field, frozen

CHUNK_BYTES = 65_536
_PATIENCE_S = 10.0


@frozen(eq=False)
class Pair:
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
    _pairs: list[Pair] = field(factory=list, init=False)

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
    def _is_passed_on(self, pair: Pair, data: bytes, *, from_client: bool) -> bool:
        """Tell whether the other side gets this; an ``OSError`` ends the connection."""

    def _is_left_open(self, _pair: Pair) -> bool:
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
            pair = Pair(client, self._connect())
            self._pairs.append(pair)
            self._spawn(partial(self._pump, pair, from_client=True))
            self._spawn(partial(self._pump, pair, from_client=False))

    def _pump(self, pair: Pair, *, from_client: bool) -> None:
        source, target = (pair.client, pair.server) if from_client else (pair.server, pair.client)
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._is_passed_on(pair, data, from_client=from_client):
                    target.sendall(data)
        if not self._is_left_open(pair):
            pair.cut()
