"""Answers that are no success, as errors that say what to make of them."""

from datetime import UTC, datetime

import httpx

from tileferry.adapters.http.lanes import Answer
from tileferry.adapters.http.responses import excerpt_of
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.retry import parse_retry_after
from tileferry.domain.tiles import fault_of_status

RETRY_AFTER_S_MAX = 24 * 3600.0
"""What is taken down; how much of it is waited is the policy's to say."""


def authorization_of(client: httpx.Client) -> str:
    """Return what a client sends to say who we are."""
    return str(client.headers.get("authorization", "Bearer none"))


def key_of(client: httpx.Client) -> str:
    """Return the key in it."""
    return authorization_of(client).rpartition(" ")[2]


def refusal_of(answer: Answer, secret: str, clock: Clock) -> SatelliteProviderError:
    """Return the error of an answer that is no success; the key is not in it."""
    return SatelliteProviderError(
        reason=answer.reason.lower() or "refused",
        url=answer.url,
        status=answer.status,
        body_excerpt=excerpt_of(answer, secret=secret, clock=clock),
        fault=fault_of_status(answer.status),
        retry_after_s=parse_retry_after(
            answer.header("retry-after"),
            now=datetime.fromtimestamp(clock.now(), UTC),
            cap_s=RETRY_AFTER_S_MAX,
        ),
    )
