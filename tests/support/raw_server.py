"""A server that sends exactly the bytes it is told, and as slowly: what no framework would do."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

Script = Callable[[socket.socket], None]
_REQUEST_BYTES_MAX = 65_536


@define(eq=False)
class RawServer:
    """Runs a script for each connection, once it has read a request."""

    url: str
    requests: list[bytes] = field(factory=list, init=False)


@contextmanager
def raw_server(script: Script, *, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    """Serve on loopback until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = RawServer(f"{'http' if tls is None else 'https'}://localhost:{port}")
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            plain = tls.wrap_socket(connection, server_side=True) if tls else connection
            with plain:
                plain.settimeout(10)
                while request := _request_of(plain):
                    server.requests.append(request)
                    script(plain)

    def accept() -> None:
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=handle, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        stopping.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(timeout=5)


def _request_of(connection: socket.socket) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content and len(content) < _REQUEST_BYTES_MAX:
        chunk = connection.recv(4096)
        if not chunk:
            return b""
        content += chunk
    return content


def answering(head: str, body: bytes = b"", *, then: Script | None = None) -> Script:
    """Return a script that sends an answer, and then does something else, or closes."""

    def script(connection: socket.socket) -> None:
        connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        if then is not None:
            then(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    return script
