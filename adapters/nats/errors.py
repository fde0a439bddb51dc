"""Translation of nats-py errors into ``MessagingError``, and their retry classification."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen
from nats import errors as core
from nats.js import errors as js

from tileferry.domain.errors import MessagingError
from tileferry.domain.retry import ErrorClass, Final, Retryable

WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
"""Another writer was first. Writers treat this as an answer, not as a failure."""
DUPLICATE_IN_BATCH = 10201
NO_MESSAGE = 10037
NO_STREAM = 10059
_TOO_LARGE = 10054

_START = "start the server, or correct nats_url"
_LOGIN = "check the credentials in nats_url and the user's permissions"
_AGAIN = "run again; if it happens again, see the server's log"
_ENABLE = "start nats-server with -js, and enable JetStream for this account"
_TLS = "check the server's certificate, the host name in nats_url, and the CA file"
_OFFER = "enable TLS on the server, or use nats:// for a server on this machine"
_DEFECT = "this is a defect; please report it"


@frozen
class _Meaning:
    remedy: str
    problem: str = ""
    """If empty, the server's text is used."""
    worth_a_retry: bool = False


_LOST = _Meaning(_AGAIN, "the connection was lost", worth_a_retry=True)
_NO_ANSWER = _Meaning(_AGAIN, "timed out", worth_a_retry=True)
_REJECTED = _Meaning(_LOGIN, "login rejected")
_DISABLED = _Meaning(_ENABLE, "JetStream is not enabled")
_NOT_READY = _Meaning(
    _ENABLE, "JetStream does not respond: not ready, or not enabled", worth_a_retry=True
)
_SERVER_FAILED = _Meaning(_AGAIN, worth_a_retry=True)
_BAD_REQUEST = _Meaning(_DEFECT)

# JetStream's error codes are more specific than the exception types.
_BY_CODE = {
    10039: _DISABLED,  # for this account
    10076: _DISABLED,  # on this server
    NO_STREAM: _Meaning("create it again, or correct its name", "the stream does not exist"),
    10058: _Meaning("use another name", "a stream with this name has other settings"),
    10065: _Meaning("use another subject", "the subject belongs to another stream"),
    10005: _Meaning("use fewer replicas, or add servers"),  # no suitable peers
    10074: _Meaning("use one replica, or a cluster"),  # replicas outside of a cluster
    _TOO_LARGE: _Meaning("store less per key, or raise max_payload", "the message is too large"),
}
# The first matching type wins.
_BY_TYPE: tuple[tuple[type[Exception], _Meaning], ...] = (
    (core.AuthorizationError, _REJECTED),
    (core.InvalidUserCredentialsError, _REJECTED),
    (
        core.SecureConnWantedError,
        _Meaning(_OFFER, "tls:// requires TLS, but the server does not offer it"),
    ),
    (ssl.SSLError, _Meaning(_TLS, "TLS failed")),
    (core.MaxPayloadError, _Meaning("store less per key, or raise max_payload")),
    (core.NoServersError, _Meaning(_START, "cannot connect", worth_a_retry=True)),
    (js.NoStreamResponseError, _NOT_READY),
    (js.ServiceUnavailableError, _NOT_READY),
    (core.NoRespondersError, _NOT_READY),
    (core.ConnectionClosedError, _LOST),
    (core.ConnectionDrainingError, _LOST),
    (core.ConnectionReconnectingError, _LOST),
    (core.StaleConnectionError, _LOST),
    (core.OutboundBufferLimitError, _LOST),
    (js.ServerError, _SERVER_FAILED),
    (js.APIError, _BAD_REQUEST),
    (TimeoutError, _NO_ANSWER),
    (OSError, _Meaning(_START, "cannot connect", worth_a_retry=True)),
)
# Errors during connecting have no type of their own, only a text.
_BY_WORDS = (
    ("authorization violation", _REJECTED),
    ("authentication", _REJECTED),
    ("permissions violation", _REJECTED),
    ("empty response from server", _LOST),
    ("maximum connections exceeded", _Meaning("close other connections", worth_a_retry=True)),
)
_OTHER = _Meaning(_AGAIN)
# The text of these errors only repeats their name.
_WORDLESS = (
    core.TimeoutError,
    core.ConnectionClosedError,
    core.NoServersError,
    core.NoRespondersError,
    core.SecureConnWantedError,
    js.NoStreamResponseError,
)


def classify_error(error: BaseException) -> ErrorClass:
    """Return whether a failed call can be retried."""
    original = error.__cause__ if isinstance(error, MessagingError) else error
    if original is None:
        return Final()
    return Retryable() if _find_meaning(original).worth_a_retry else Final()


def is_too_large(error: BaseException | None) -> bool:
    """Return whether an error was caused by a message that is larger than the server accepts."""
    while error is not None:
        if isinstance(error, core.MaxPayloadError):
            return True
        if isinstance(error, js.APIError) and error.err_code == _TOO_LARGE:
            return True
        error = error.__cause__
    return False


@contextmanager
def translate_nats_errors(place: str) -> Iterator[None]:
    """Raise nats-py errors from the block as ``MessagingError``, with the cause and a remedy."""
    try:
        yield
    except (core.Error, OSError, ValueError) as error:
        meaning = _find_meaning(error)
        said = _extract_detail(error)
        problem = f"{meaning.problem}: {said}" if meaning.problem and said else meaning.problem
        raise MessagingError(
            problem=f"{place}: {problem or said or type(error).__name__}", remedy=meaning.remedy
        ) from error


def _find_meaning(error: BaseException) -> _Meaning:
    if isinstance(error, js.APIError) and error.err_code in _BY_CODE:
        return _BY_CODE[error.err_code]
    for kind, meaning in _BY_TYPE:
        if isinstance(error, kind):
            return meaning
    words = str(error).lower()
    return next((meaning for sign, meaning in _BY_WORDS if sign in words), _OTHER)


def _extract_detail(error: BaseException) -> str:
    """Return the error's own text, if it adds anything to its meaning."""
    if isinstance(error, js.APIError):
        return error.description or ""
    if isinstance(error, _WORDLESS):
        return ""
    return str(error).removeprefix("nats: ").strip("'")
