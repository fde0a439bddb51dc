"""Requests through pyreqwest: Rust makes them, so that threads do not wait for each other.

What that is worth was measured: _docs/decisions/0012.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus

from attrs import define, field, frozen
from pyreqwest.client import SyncClient, SyncClientBuilder
from pyreqwest.response import SyncResponse

from tileferry.adapters.http.client import ProviderAddress, check_address, tls_context
from tileferry.adapters.http.lanes import Chunk

_OFF = False


@frozen
class _FastAnswer:
    _response: SyncResponse
    url: str

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""

    @property
    def ends_by_itself(self) -> bool:
        headers = self._response.headers
        framed = "content-length" in headers or "transfer-encoding" in headers
        return framed or not self._response.version.startswith("HTTP/1")

    def header(self, name: str) -> str | None:
        values = self._response.get_header_all(name)
        return ", ".join(values) if values else None

    def chunks(self) -> Iterable[Chunk]:
        reader = self._response.body_reader
        while (chunk := reader.read_chunk()) is not None:
            yield memoryview(chunk)  # not a copy: the body is put together from it once


@define
class FastLane:
    """A client of its own, under the same rules as ``new_client``."""

    _address: ProviderAddress
    waits_for_ever: bool = field(default=False, init=False)
    _base: str = field(init=False)
    _client: SyncClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        address = self._address
        check_address(address)
        timeout = timedelta(seconds=address.timeout_s)
        builder = (
            SyncClientBuilder()
            .default_headers(address.headers)
            .follow_redirects(_OFF)
            .no_proxy()
            .gzip(_OFF)
            .brotli(_OFF)
            .zstd(_OFF)
            .deflate(_OFF)
            .referer(_OFF)
            .min_tls_version("TLSv1.2")
            .connect_timeout(timeout)
            .read_timeout(timeout)
            .pool_max_idle_per_host(address.connections)
        )
        if address.ca_file is not None:
            tls_context(address)  # says what is wrong with the file, if something is
            builder = builder.add_root_certificate_pem(address.ca_file.read_bytes())
        self._base = address.url.rstrip("/")
        self._client = builder.build()

    @contextmanager
    def get(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[_FastAnswer]:
        """Ask by pyreqwest."""
        url = f"{self._base}{path}"
        request = self._client.get(url).streamed_read_buffer_limit(0)  # nothing is read unasked
        if query is not None:
            request = request.query(dict(query))
        with request.build_streamed() as response:
            yield _FastAnswer(response, url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
