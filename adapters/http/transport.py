"""The interface of a transport that waits for its responses, and the one that uses httpx."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import httpx
from attrs import define, field, frozen

from tileferry.domain.tiles import TILE_BYTES_MAX
from tileferry.domain.validation import integer, number

Chunk = bytes | memoryview


@frozen(kw_only=True)
class ResponseLimits:
    """Limits for one response."""

    tile_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1, TILE_BYTES_MAX))
    deadline_s: float = field(default=120.0, validator=number(0.001, 3600))
    """From the call to the last byte; for an upload, from the end of sending."""
    rate_bytes_s_min: float = field(default=1_000.0, validator=number(0))
    """A slower response is aborted after ``grace_s``."""
    grace_s: float = field(default=10.0, validator=number(0))
    family: str = "image/"
    """What the media type must begin with."""
    is_plain_server: bool = False
    """Whether to accept what plain tile servers do without being asked: compression,
    redirects within the server, and tiles without a media type.
    """


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
