"""How a request gets to the provider: through an httpx client, or through a faster one."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import httpx
from attrs import define, field, frozen

Chunk = bytes | memoryview


class Answer(Protocol):
    """An answer whose body is still to be read."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def reason(self) -> str:
        """What the status means."""
        ...

    @property
    def url(self) -> str:
        """What was asked for, without its query."""
        ...

    @property
    def ends_by_itself(self) -> bool:
        """Whether the body says where it ends; else it ends with the connection, or breaks off."""
        ...

    def header(self, name: str) -> str | None:
        """Return a header, whatever its case; of one that is there twice, all with commas."""
        ...

    def chunks(self) -> Iterable[Chunk]:
        """Return the body as it comes in, nothing decoded."""
        ...


class Lane(Protocol):
    """Makes requests. What goes wrong is the library's own error, for ``answered`` to translate."""

    @property
    def waits_for_ever(self) -> bool:
        """Whether an answer that comes in little pieces can take any time."""
        ...

    def get(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Answer]:
        """Ask for something below the provider's address."""
        ...


@frozen
class HttpxAnswer:
    """An answer that httpx got."""

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

    @property
    def ends_by_itself(self) -> bool:
        headers = self._response.headers
        framed = "content-length" in headers or "transfer-encoding" in headers
        return framed or self._response.http_version == "HTTP/2"

    def header(self, name: str) -> str | None:
        value: str | None = self._response.headers.get(name)
        return value

    def chunks(self) -> Iterable[bytes]:
        # A transport that is no network may have it all by now.
        response = self._response
        return [response.content] if response.is_stream_consumed else response.iter_raw()


@define
class HttpxLane:
    """Through a client that knows the address and the key; never beyond its first answer."""

    client: httpx.Client
    waits_for_ever: bool = field(default=True, init=False)

    @contextmanager
    def get(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[HttpxAnswer]:
        """Ask by httpx."""
        request = self.client.build_request(
            "GET",
            path,
            params=None if query is None else dict(query),
            headers={"Accept-Encoding": "identity"},
        )
        response = self.client.send(request, stream=True, follow_redirects=False)
        try:
            yield HttpxAnswer(response)
        finally:
            response.close()
