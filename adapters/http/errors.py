"""What httpx raises, in the product's words. No error of ours leads back to a request's headers."""

import ssl
from collections.abc import Callable
from typing import TypeVar

import httpx

from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.text import printable
from tileferry.domain.tiles import ProviderFault

Result = TypeVar("Result")
_FAULTS: tuple[tuple[type[Exception], ProviderFault, str], ...] = (
    (httpx.ConnectTimeout, ProviderFault.TIMED_OUT, "no connection in time"),
    (httpx.TimeoutException, ProviderFault.TIMED_OUT, "no answer in time"),
    (httpx.RemoteProtocolError, ProviderFault.TRUNCATED, "the answer broke off"),
    (httpx.TransportError, ProviderFault.UNREACHABLE, "the connection failed"),
    (httpx.StreamError, ProviderFault.TRUNCATED, "the answer broke off"),
    (httpx.HTTPError, ProviderFault.UNREACHABLE, "the call failed"),
)


def answered(call: Callable[[], Result], url: str) -> Result:
    """Return what ``call`` returns; what httpx raises becomes a ``SatelliteProviderError``.

    It is raised outside of the handler on purpose: an exception that was being handled stays
    attached to the next one, and httpx's own hold the request with its key.
    """
    try:
        return call()
    except (httpx.HTTPError, httpx.StreamError, ssl.SSLError) as error:
        translated = _translated(error, url)
    raise translated


def _translated(error: Exception, url: str) -> SatelliteProviderError:
    tls = _tls_problem(error)
    if tls is not None:
        return SatelliteProviderError(
            reason=f"TLS failed: {tls}", url=url, fault=ProviderFault.INSECURE
        )
    for kind, fault, reason in _FAULTS:
        if isinstance(error, kind):
            return SatelliteProviderError(
                reason=f"{reason}: {printable(str(error)) or kind.__name__}", url=url, fault=fault
            )
    return SatelliteProviderError(
        reason=type(error).__name__, url=url, fault=ProviderFault.UNREACHABLE
    )


def _tls_problem(error: BaseException) -> str | None:
    """Return what TLS complained about, if it was TLS: it is somewhere in the chain."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, ssl.SSLEOFError):
            return printable(getattr(seen, "verify_message", "") or seen.reason or str(seen))
        seen = seen.__cause__ or seen.__context__
    return None
