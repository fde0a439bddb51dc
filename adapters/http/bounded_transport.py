"""The network side of httpx, with a limit on what may come before a response.

httpx skips "100 Continue" and "103 Early Hints" without counting them. A provider that sends them
without end would keep a thread busy forever, even after the caller has given up.
"""

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx
from attrs import define, field

INTERIM_RESPONSES_MAX = 64
_INTERIM = (b"HTTP/1.1 1", b"HTTP/1.0 1")
_INTERIM_BYTES = len(_INTERIM[0])


@define(eq=False)
class _BoundedStream(httpcore.NetworkStream):
    """A connection that counts the interim responses to each request.

    It looks for their first bytes. A body that has these too many times is not a tile or a listing.
    """

    _stream: httpcore.NetworkStream
    _seen: int = field(default=0, init=False)
    _end: bytes = field(default=b"", init=False)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        content = self._stream.read(max_bytes, timeout)
        searched = self._end + content
        self._seen += sum(map(searched.count, _INTERIM))
        if self._seen > INTERIM_RESPONSES_MAX:
            raise httpcore.RemoteProtocolError(
                f"more than {INTERIM_RESPONSES_MAX} interim responses"
            )
        self._end = searched[-(_INTERIM_BYTES - 1) :]
        return content

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._seen, self._end = 0, b""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _BoundedBackend(httpcore.SyncBackend):
    """Opens bounded connections."""

    def connect_tcp(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        return _BoundedStream(super().connect_tcp(*args, **options))


class _ResponseBody(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _translate_errors():
            yield from self._response.iter_stream()

    def close(self) -> None:
        with _translate_errors():
            self._response.close()


class BoundedTransport(httpx.BaseTransport):
    """Sends the requests of an httpx client over bounded connections, by HTTP/1.1."""

    def __init__(self, *, tls: ssl.SSLContext, connections: int) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=_BoundedBackend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, Iterable)  # noqa: S101  # a synchronous client sent it
        url = request.url
        with _translate_errors():
            response = self._pool.handle_request(
                httpcore.Request(
                    method=request.method,
                    url=httpcore.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_ResponseBody(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._pool.close()


_KEEPALIVE_S = 5.0
_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise httpx's error of the same name."""
    try:
        yield
    except _ERRORS as error:
        kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.NetworkError)
        raise kind(str(error)) from error
