"""Translation of the HTTP libraries' errors to ``SatelliteProviderError``.

Our errors never reference a request, because its headers contain the key.
"""

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import pycurl
from attrs import evolve, fields

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
)


class CurlError(Exception):
    """A transfer that libcurl could not complete, with its code and message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or f"libcurl's error {code}")
        self.code = code


TRANSLATED = (SatelliteProviderError, httpx.HTTPError, httpx.StreamError, ssl.SSLError, CurlError)
_CURL_TLS = {
    pycurl.E_SSL_CONNECT_ERROR,
    pycurl.E_PEER_FAILED_VERIFICATION,
    pycurl.E_SSL_CACERT_BADFILE,
    pycurl.E_SSL_CERTPROBLEM,
    pycurl.E_SSL_CIPHER,
    pycurl.E_SSL_ISSUER_ERROR,
    pycurl.E_SSL_INVALIDCERTSTATUS,
}
_LOST_SIGNS = ("unexpected eof", "ssl_error_syscall", "connection reset", "connection was reset")
"""In the message of a TLS handshake that the network ended, not the peer's certificate."""
_UNREACHABLE = (ProviderFault.UNREACHABLE, "the connection failed")
_BROKEN = (ProviderFault.TRUNCATED, "the response broke off")
_TOO_LARGE = (ProviderFault.TOO_LARGE, "the response is too large")
_E_TOO_LARGE = 100
"""libcurl's code for too long or too many headers, which pycurl does not name."""
_CURL_FAULTS = {
    pycurl.E_OPERATION_TIMEDOUT: (ProviderFault.TIMED_OUT, "no response in time"),
    pycurl.E_PARTIAL_FILE: _BROKEN,
    pycurl.E_RECV_ERROR: _BROKEN,
    pycurl.E_GOT_NOTHING: _BROKEN,
    pycurl.E_FTP_WEIRD_SERVER_REPLY: _BROKEN,
    pycurl.E_UNSUPPORTED_PROTOCOL: _BROKEN,  # the response does not begin as one of HTTP
    pycurl.E_BAD_CONTENT_ENCODING: _BROKEN,
    pycurl.E_WRITE_ERROR: _BROKEN,  # ended by us
    pycurl.E_FILESIZE_EXCEEDED: _TOO_LARGE,
    _E_TOO_LARGE: _TOO_LARGE,
}


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
    except TRANSLATED as error:
        told = translate_error(error, url(), secret=secret)
    raise told


def translate_error(error: Exception, url: str, *, secret: str) -> SatelliteProviderError:
    """Return the error to report for one of a transport or a reader, without the key."""
    if isinstance(error, SatelliteProviderError):
        return _redact_error(evolve(error, url=url), secret)
    return _redact_error(_translate_foreign(error, url, secret), secret)


def _translate_foreign(error: Exception, url: str, secret: str) -> SatelliteProviderError:
    tls = _find_tls_problem(error)
    if tls is not None:
        return SatelliteProviderError(
            reason=f"TLS failed: {tls}", url=url, fault=ProviderFault.INSECURE
        )
    if isinstance(error, CurlError):
        fault, reason = _CURL_FAULTS.get(error.code, _UNREACHABLE)
    else:
        _, fault, reason = next(known for known in _FAULTS if isinstance(error, known[0]))
    said = str(error) or type(error).__name__
    said = redact_key(
        said, secret
    )  # before it is shortened: the library's text contains the whole address
    return SatelliteProviderError(reason=f"{reason}: {printable(said)}", url=url, fault=fault)


def _find_tls_problem(error: BaseException) -> str | None:
    """Return the message of the first TLS error in the exception chain, if there is one."""
    if isinstance(error, CurlError):
        return _find_curl_tls_problem(error)
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, ssl.SSLEOFError):
            return printable(getattr(seen, "verify_message", "") or seen.reason or str(seen))
        seen = seen.__cause__ or seen.__context__
    return None


def _find_curl_tls_problem(error: CurlError) -> str | None:
    text = str(error)
    is_lost = any(sign in text.lower() for sign in _LOST_SIGNS)
    return printable(text) if error.code in _CURL_TLS and not is_lost else None


def _redact_error(error: SatelliteProviderError, secret: str) -> SatelliteProviderError:
    texts: dict[str, Any] = {
        item.name: redact_key(getattr(error, item.name), secret)
        for item in fields(type(error))
        if isinstance(getattr(error, item.name), str) and item.name != "fault"
    }
    return evolve(error, **texts)
