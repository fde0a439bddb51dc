"""Translation of the HTTP libraries' errors to ``SatelliteProviderError``.

Our errors never reference a request, because its headers contain the key.
"""

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
from attrs import evolve, fields
from pyreqwest import exceptions as fast

from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.redaction import redact_key
from tileferry.domain.text import printable
from tileferry.domain.tiles import ProviderFault

Result = TypeVar("Result")
_FAULTS: tuple[tuple[type[Exception], ProviderFault, str], ...] = (
    (httpx.ConnectTimeout, ProviderFault.TIMED_OUT, "no connection in time"),
    (httpx.TimeoutException, ProviderFault.TIMED_OUT, "no response in time"),
    (httpx.RemoteProtocolError, ProviderFault.TRUNCATED, "the response broke off"),
    (httpx.StreamError, ProviderFault.TRUNCATED, "the response broke off"),
    (httpx.HTTPError, ProviderFault.UNREACHABLE, "the connection failed"),
    (fast.ConnectTimeoutError, ProviderFault.TIMED_OUT, "no connection in time"),
    (fast.RequestTimeoutError, ProviderFault.TIMED_OUT, "no response in time"),
    (fast.DecodeError, ProviderFault.TRUNCATED, "the response broke off"),
    (fast.ReadError, ProviderFault.TRUNCATED, "the response broke off"),
    (fast.PyreqwestError, ProviderFault.UNREACHABLE, "the connection failed"),
)
_FOREIGN = (httpx.HTTPError, httpx.StreamError, ssl.SSLError, fast.PyreqwestError)
_BODY_SIGN = "response body"
_TLS_SIGNS = ("certificate", "handshake", "tls", "fatal alert", "peer is incompatible")


def call_translating_errors(
    call: Callable[[], Result], url: Callable[[], str], *, secret: str
) -> Result:
    """Return the result of ``call``; raise library errors as ``SatelliteProviderError``.

    The error shows ``url``, which must be safe to display. The key is removed from every error,
    because a provider may repeat it in any text. The error is raised outside of the ``except``
    block on purpose: inside, Python would attach the library's exception, which holds the request.
    """
    try:
        return call()
    except SatelliteProviderError as error:
        told = evolve(error, url=url())
    except _FOREIGN as error:
        told = _translate_error(error, url(), secret)
    raise _redact_error(told, secret)


def _translate_error(error: Exception, url: str, secret: str) -> SatelliteProviderError:
    tls = _find_tls_problem(error) or _find_pyreqwest_tls_problem(error)
    if tls is not None:
        return SatelliteProviderError(
            reason=f"TLS failed: {tls}", url=url, fault=ProviderFault.INSECURE
        )
    kind, fault, reason = next(known for known in _FAULTS if isinstance(error, known[0]))
    causes = _list_causes(error)
    if fault is ProviderFault.UNREACHABLE and any(_BODY_SIGN in cause for cause in causes):
        fault, reason = ProviderFault.TRUNCATED, "the response broke off"
    said = " / ".join(dict.fromkeys(causes)) or str(error) or kind.__name__
    said = redact_key(
        said, secret
    )  # before it is shortened: the library's text contains the whole address
    return SatelliteProviderError(reason=f"{reason}: {printable(said)}", url=url, fault=fault)


def _find_tls_problem(error: BaseException) -> str | None:
    """Return the message of the first TLS error in the exception chain, if there is one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, ssl.SSLEOFError):
            return printable(getattr(seen, "verify_message", "") or seen.reason or str(seen))
        seen = seen.__cause__ or seen.__context__
    return None


def _find_pyreqwest_tls_problem(error: Exception) -> str | None:
    """Recognize a TLS error by its text: pyreqwest has no exception class for it."""
    if not isinstance(error, fast.ConnectError):
        return None
    causes = _list_causes(error)
    signs = (cause for cause in causes if any(sign in cause.lower() for sign in _TLS_SIGNS))
    found = next(signs, None)
    return None if found is None else printable(found)


def _list_causes(error: Exception) -> list[str]:
    details = getattr(error, "details", None)
    causes = details.get("causes") if isinstance(details, dict) else None
    return [str(cause["message"]) for cause in causes or ()]


def _redact_error(error: SatelliteProviderError, secret: str) -> SatelliteProviderError:
    texts: dict[str, Any] = {
        item.name: redact_key(getattr(error, item.name), secret)
        for item in fields(type(error))
        if isinstance(getattr(error, item.name), str) and item.name != "fault"
    }
    return evolve(error, **texts)
