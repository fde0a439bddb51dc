"""Transports that send requests to the provider: httpx, or the faster pyreqwest."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import httpx
from attrs import define, field, frozen
from pyreqwest.client import SyncClient, SyncClientBuilder
from pyreqwest.response import SyncResponse

from tileferry.adapters.http.client import ProviderAddress, check_address, create_tls_context

Chunk = bytes | memoryview


class TransportResponse(Protocol):
    """A response whose body has not been read yet."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def reason(self) -> str:
        """The reason phrase of the status code."""
        ...

    @property
    def url(self) -> str:
        """The requested URL, without its query."""
        ...

    def header(self, name: str) -> str | None:
        """Return a header by its case-insensitive name; repeated headers are joined by commas."""
        ...

    def chunks(self) -> Iterable[Chunk]:
        """Return the body's chunks as they arrive, without content decoding."""
        ...


class Transport(Protocol):
    """Sends requests; raises the library's errors, which ``call_translating_errors`` translates."""

    @property
    def waits_for_ever(self) -> bool:
        """Whether a response that arrives in small pieces can take unlimited time."""
        ...

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[TransportResponse]:
        """Request a path below the provider's address; ``headers`` are added to the usual ones."""
        ...


@frozen
class HttpxResponse:
    """A response received by httpx."""

    _response: httpx.Response

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def reason(self) -> str:
        return self._response.reason_phrase

    @property
    def url(self) -> str:
        return str(self._response.url.copy_with(query=None))

    def header(self, name: str) -> str | None:
        value: str | None = self._response.headers.get(name)
        return value

    def chunks(self) -> Iterable[bytes]:
        # A mock transport may have read the whole body already.
        response = self._response
        return [response.content] if response.is_stream_consumed else response.iter_raw()


@define
class HttpxTransport:
    """Sends requests through an httpx client with address and key; never follows redirects."""

    client: httpx.Client
    waits_for_ever: bool = field(default=True, init=False)

    @contextmanager
    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[HttpxResponse]:
        request = self.client.build_request(
            "GET",
            path,
            params=None if query is None else dict(query),
            headers={"Accept-Encoding": "identity", **(headers or {})},
        )
        response = self.client.send(request, stream=True, follow_redirects=False)
        try:
            yield HttpxResponse(response)
        finally:
            response.close()


_OFF = False


@frozen
class _PyreqwestResponse:
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

    def header(self, name: str) -> str | None:
        values = self._response.get_header_all(name)
        return ", ".join(values) if values else None

    def chunks(self) -> Iterable[Chunk]:
        reader = self._response.body_reader
        while (chunk := reader.read_chunk()) is not None:
            yield memoryview(chunk)  # no copy: the body is assembled from these chunks once


@define
class PyreqwestTransport:
    """Sends requests through its own pyreqwest client, with the same rules as ``new_client``."""

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
            create_tls_context(address)  # reports an invalid certificate file
            builder = builder.add_root_certificate_pem(address.ca_file.read_bytes())
        self._base = address.url.rstrip("/")
        self._client = builder.build()

    @contextmanager
    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[_PyreqwestResponse]:
        url = f"{self._base}{path}"
        request = self._client.get(url).streamed_read_buffer_limit(0)  # no read-ahead
        if query is not None:
            request = request.query(dict(query))
        if headers is not None:
            request = request.headers(dict(headers))
        with request.build_streamed() as response:
            yield _PyreqwestResponse(response, url)

    def close(self) -> None:
        self._client.close()
