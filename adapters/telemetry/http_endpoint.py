"""A small HTTP server for the metrics and the health of a process."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6

from attrs import define, field, frozen

_CONNECTIONS_MAX = 16
_READ_TIMEOUT_S = 5.0
_JOIN_S = 5.0


@frozen(kw_only=True)
class Answer:
    """The answer to a request."""

    status: int
    content: bytes
    content_type: str = "text/plain; charset=utf-8"


@define(eq=False)
class HttpEndpoint:
    """Answers GET and HEAD requests in its own threads while it is open."""

    host: str
    port: int
    answer: Callable[[str], Answer]
    """Gets the path without its query."""
    permits_host: Callable[[str | None], bool]
    """Checks the Host header, against DNS rebinding."""
    _server: ThreadingHTTPServer | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def open(self) -> int:
        """Listen, and return the port; raise ``OSError`` if that is not possible."""
        endpoint = self

        class Handler(_Handler):
            find_answer = staticmethod(self._find_answer)

        class Server(_BoundedServer):
            address_family = AF_INET6 if ":" in endpoint.host else _BoundedServer.address_family

        self._server = Server((self.host, self.port), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True
        )
        self._thread.start()
        return int(self._server.server_address[1])

    def _find_answer(self, host: str | None, path: str) -> Answer:
        return self.answer(path.partition("?")[0]) if self.permits_host(host) else _MISDIRECTED

    def close(self) -> None:
        """Stop listening."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            thread.join(_JOIN_S)


_MISDIRECTED = Answer(status=421, content=b"the Host header names another server\n")


class _BoundedServer(ThreadingHTTPServer):
    """Refuses connections while too many are open: each costs a thread."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: object, **named: object) -> None:
        self._slots = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        super().__init__(*args, **named)  # type: ignore[arg-type]  # passed on

    def process_request(self, request: object, client_address: object) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not log clients that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _READ_TIMEOUT_S
    server_version = "tileferry"
    sys_version = ""

    find_answer: Callable[[str | None, str], Answer]
    """Receives the Host header and the path."""

    def do_GET(self) -> None:
        answer = self.find_answer(self.headers.get("Host"), self.path)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Log nothing: a scrape every few seconds is not worth a record."""
