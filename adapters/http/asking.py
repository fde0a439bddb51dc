"""One request and its answer, read while it is open: bounded, and with no key in its errors."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import TypeVar

from attrs import define, field

from tileferry.adapters.http.client import hidden
from tileferry.adapters.http.deadlines import within
from tileferry.adapters.http.errors import answered
from tileferry.adapters.http.lanes import Answer, Lane
from tileferry.adapters.http.refusals import refusal_of
from tileferry.adapters.http.responses import (
    ResponseLimits,
    body_of,
    check_content_type,
    check_digest,
    check_whole,
)
from tileferry.application.ports.clock import Clock

Result = TypeVar("Result")
_OK = 200
_LEEWAY_S = 1.0


@define(kw_only=True)
class Asking:
    """How a provider is asked, whatever kind of provider it is."""

    clock: Clock
    limits: ResponseLimits
    secret: str = field(repr=hidden)
    """The key, which no error may show; empty where there is none."""

    def get(
        self,
        lane: Lane,
        path: str,
        read: Callable[[Answer, float], Result],
        *,
        url: Callable[[], str],
        query: Mapping[str, str] | None = None,
    ) -> Result:
        """Make a request and have its answer read; ``url`` says what errors show of it."""

        def call() -> Result:
            started_s = self.clock.monotonic()
            with lane.get(path, query) as answer:
                if answer.status != _OK:
                    raise refusal_of(answer, self.secret, self.clock)
                return read(answer, started_s)

        bounded = call
        if lane.waits_for_ever:  # what is merely slow is given up before that, and told so
            bounded = partial(within, self.limits.deadline_s + _LEEWAY_S, call)
        return answered(bounded, url, secret=self.secret)

    def body(self, answer: Answer, started_s: float, bytes_max: int) -> bytes:
        """Return a body, which is never longer, and comes in time."""
        return body_of(
            answer, bytes_max=bytes_max, limits=self.limits, clock=self.clock, started_s=started_s
        )

    def picture(self, answer: Answer, started_s: float) -> tuple[bytes, bytes]:
        """Return a tile's bytes, complete and as they were declared, and their sha256."""
        check_content_type(answer, family="image/")
        content = self.body(answer, started_s, self.limits.tile_bytes_max)
        check_whole(answer, content)
        digest = sha256(content).digest()  # here, where threads do it side by side
        check_digest(answer, digest)
        return content, digest
