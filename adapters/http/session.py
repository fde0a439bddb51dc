"""One request and its response, read within limits; errors never contain the key."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from attrs import define, field

from tileferry.adapters.http.client import mask_secret
from tileferry.adapters.http.deadlines import call_within
from tileferry.adapters.http.errors import call_translating_errors
from tileferry.adapters.http.responses import (
    check_tile,
    check_tile_type,
    find_redirect,
    read_body,
    to_provider_error,
)
from tileferry.adapters.http.transport import ResponseLimits, Transport, TransportResponse
from tileferry.application.ports.clock import Clock
from tileferry.domain.tiles import Picture

Result = TypeVar("Result")
_OK = 200
NOT_MODIFIED = 304
_LEEWAY_S = 1.0


@define(kw_only=True)
class ProviderSession:
    """Request handling shared by all kinds of providers."""

    clock: Clock
    limits: ResponseLimits
    secret: str = field(repr=mask_secret)
    """The key, which is removed from errors; empty if there is none."""

    def get(
        self,
        lane: Transport,
        path: str,
        read: Callable[[TransportResponse, float], Result],
        *,
        url: Callable[[], str],
        query: Mapping[str, str] | None = None,
        unless: Mapping[str, str] | None = None,
    ) -> Result:
        """Send a request and return what ``read`` makes of the response; errors show ``url``.

        ``unless`` are the headers of a conditional request: ``read`` may then get a 304.
        """

        def call(target: str, parameters: Mapping[str, str] | None, hops: int = 0) -> Result:
            started_s = self.clock.monotonic()
            with lane.get(target, parameters, unless) as answer:
                found = find_redirect(answer, self.limits, hops)
                if found is None:
                    self.check_status(answer, is_conditional=unless is not None)
                    return read(answer, started_s)
            return call(found, None, hops + 1)

        # A response in small pieces can take unlimited time; it is reported as slow before this.
        deadline_s = self.limits.deadline_s + _LEEWAY_S
        bounded = partial(call_within, deadline_s, partial(call, path, query))
        return call_translating_errors(bounded, url, secret=self.secret)

    def check_status(self, answer: TransportResponse, *, is_conditional: bool) -> None:
        """Reject a response without a tile, except 304 to a conditional request."""
        status = answer.status
        if status != _OK and not (status == NOT_MODIFIED and is_conditional):
            raise to_provider_error(answer, self.secret, self.clock)

    def read_body(self, answer: TransportResponse, started_s: float, bytes_max: int) -> bytes:
        """Return a body of at most ``bytes_max`` bytes, read within the limits."""
        return read_body(
            answer, bytes_max=bytes_max, limits=self.limits, clock=self.clock, started_s=started_s
        )

    def read_tile(
        self, answer: TransportResponse, started_s: float
    ) -> tuple[bytes, bytes, Picture]:
        """Return the bytes of a tile that is whole, their sha256, and what the image is."""
        check_tile_type(answer, self.limits)
        content = self.read_body(answer, started_s, self.limits.tile_bytes_max)
        # Checked here, where download threads run in parallel.
        return content, *check_tile(answer, content)
