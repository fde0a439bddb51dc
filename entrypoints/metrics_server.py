"""Serves the metrics and the health of a worker, for this machine only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tileferry.adapters.telemetry.http_endpoint import HttpEndpoint
from tileferry.domain.addresses import is_loopback
from tileferry.domain.errors import InvalidStateError, NotPermittedError
from tileferry.domain.web_safety import AllowedHosts
from tileferry.entrypoints.config.audit import ListenAddress

if TYPE_CHECKING:
    from tileferry.entrypoints.metrics import Metrics

SETTING = "telemetry.prometheus_listen"


def parse_listen(text: str) -> ListenAddress:
    """Parse an address to listen on; raise unless only this machine can reach it."""
    address = ListenAddress.parse(text, field=SETTING)
    if not is_loopback(address.host):
        raise NotPermittedError(
            what=f"listening on {address.host}",
            problem="other machines can reach it, and it has no token and no TLS",
            remedy="listen on 127.0.0.1 and scrape it from this machine or through a proxy; or"
            " scrape `tileferry serve`, which supports both",
        )
    return address


@contextmanager
def serve_metrics(metrics: "Metrics", address: ListenAddress) -> Iterator[str]:
    """Answer requests during a block; yield the address."""
    hosts = AllowedHosts.build(address.host)
    endpoint = HttpEndpoint(address.host, address.port, metrics.answer, hosts.permits)
    try:
        port = endpoint.open()
    except OSError as error:
        raise InvalidStateError(
            subject=SETTING,
            problem=f"cannot listen on {address.host}:{address.port}: {error.strerror or error}",
            remedy="use a free port; each worker of this machine needs its own",
        ) from error
    try:
        host = f"[{address.host}]" if ":" in address.host else address.host
        yield f"http://{host}:{port}"
    finally:
        endpoint.close()
