"""A link to Postgres of which one message is cut, lost, late or torn to pieces."""

import time
from enum import Enum, auto

from attrs import define, field, frozen

from support.proxies import ConnectionPair, PostgresProxy, find_server_socket

_SERVER_S = 0.05
"""What the server needs at most to carry out a request."""
_LATE_S = 0.3
_PIECE_BYTES = 3


class LinkFault(Enum):
    """What happens to a chunk of bytes, which is mostly one message or a few."""

    CUT = auto()
    """The connection ends before it."""
    CUT_IN_MESSAGE = auto()
    """The connection ends in the middle of it."""
    LOSE_ANSWER = auto()
    """It arrives, and the connection ends before the answer: an ambiguous commit, if it was one."""
    DELAY = auto()
    """It arrives late; other connections and the other direction overtake it."""
    SPLIT = auto()
    """It and all that follow arrive in pieces of three bytes."""


@frozen
class NetworkFault:
    """A fault of the n-th chunk (from 0) since it was armed, of both directions."""

    kind: LinkFault
    fail_at: int

    def __str__(self) -> str:
        return f"{self.kind.name} at chunk {self.fail_at}"


@define(eq=False)
class FaultyNetwork(PostgresProxy):
    """Passes everything on, but for the armed fault."""

    _fault: NetworkFault | None = field(default=None, init=False)
    chunks: int = field(default=0, init=False)
    """How many there were since a fault was armed."""

    def arm(self, fault: NetworkFault) -> None:
        with self._lock:
            self._fault, self.chunks = fault, 0

    def disarm(self) -> None:
        with self._lock:
            self._fault = None

    def has_failed(self) -> bool:
        """Tell whether the chunk came by."""
        return self._fault is not None and self.chunks > self._fault.fail_at

    def _is_passed_on(self, pair: ConnectionPair, data: bytes, *, from_client: bool) -> bool:
        with self._lock:
            fault, number = self._fault, self.chunks
            self.chunks += 1
        if fault is None or number < fault.fail_at:
            return True
        target = pair.server if from_client else pair.client
        if fault.kind is LinkFault.SPLIT:
            for start in range(0, len(data), _PIECE_BYTES):
                target.sendall(data[start : start + _PIECE_BYTES])
            return False
        if number > fault.fail_at:
            return True
        if fault.kind is LinkFault.DELAY:
            time.sleep(_LATE_S)
            return True
        if fault.kind is LinkFault.CUT_IN_MESSAGE:
            target.sendall(data[: len(data) // 2])
        elif fault.kind is LinkFault.LOSE_ANSWER:
            target.sendall(data)
            time.sleep(_SERVER_S)
        raise ConnectionAbortedError


def create_faulty_network(url: str) -> FaultyNetwork:
    """Return a link to the server that a database is on, which runs in a ``with``."""
    return FaultyNetwork(find_server_socket(url))
