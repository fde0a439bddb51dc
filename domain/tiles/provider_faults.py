"""Faults of provider calls, and which of them are retryable."""

from enum import StrEnum

from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.retry.classify import ErrorClass, Final, RateLimited, Retryable


class ProviderFault(StrEnum):
    """Why a provider call failed."""

    UNREACHABLE = "unreachable"
    """The connection failed or broke."""
    TIMED_OUT = "timed_out"
    TOO_SLOW = "too_slow"
    UNAVAILABLE = "unavailable"
    """The provider reports a server error: 5xx."""
    RATE_LIMITED = "rate_limited"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    """The bytes do not match their digest, or the structure of the image is broken."""
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"
    INSECURE = "insecure"
    """TLS failed: the certificate is not valid for the host, or no safe protocol version is
    available.
    """
    REDIRECTED = "redirected"
    REFUSED = "refused"
    """Any other client error: 4xx."""
    SCHEMA = "schema"
    """The response does not match the agreed schema."""
    TOO_LARGE = "too_large"

    @property
    def is_missing_tile(self) -> bool:
        """Whether the provider works but does not have the tile."""
        return self is ProviderFault.NOT_FOUND

    @property
    def is_authentication(self) -> bool:
        """Whether every call will fail until an operator fixes the key or the certificate."""
        return self in {ProviderFault.UNAUTHORIZED, ProviderFault.INSECURE}

    @property
    def concerns_one_tile(self) -> bool:
        """Whether the fault may affect only this tile."""
        return self in _SINGLE_TILE_FAULTS


_SINGLE_TILE_FAULTS = {
    ProviderFault.TRUNCATED,
    ProviderFault.DAMAGED,
    ProviderFault.NOT_FOUND,
    ProviderFault.SCHEMA,
    ProviderFault.TOO_LARGE,
    ProviderFault.TOO_SLOW,
}
_TRANSIENT_FAULTS = {
    ProviderFault.UNREACHABLE,
    ProviderFault.TIMED_OUT,
    ProviderFault.TOO_SLOW,
    ProviderFault.UNAVAILABLE,
    ProviderFault.TRUNCATED,
    ProviderFault.DAMAGED,
}


def classify_fault(fault: ProviderFault, retry_after_s: float | None = None) -> ErrorClass:
    """Return whether a retry may help."""
    if fault is ProviderFault.RATE_LIMITED:
        return RateLimited(retry_after_s=retry_after_s)
    return Retryable() if fault in _TRANSIENT_FAULTS else Final()


def fault_from_status(status: int) -> ProviderFault:
    """Return the fault for an HTTP status that does not mean success."""
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    if status >= _SERVER_ERRORS:
        return ProviderFault.UNAVAILABLE
    return ProviderFault.REFUSED if status >= _CLIENT_ERRORS else ProviderFault.REDIRECTED


def should_abort_download(
    fault: ProviderFault | None,
    *,
    others_answered: bool,
    tiles_failed: int,
    tiles_requested: int,
    max_failures_share: float | None,
) -> bool:
    """Return whether a failed tile aborts the whole download.

    An authentication fault always does. Otherwise the operator's ``max_failures_share`` decides. If
    it is not set, the tile is set aside if its fault may be its own, or if other tiles were
    answered during its attempts (``others_answered``); an outage or a rate limit of all requests
    aborts.
    """
    if fault is None:
        fault = ProviderFault.RATE_LIMITED
    if fault.is_authentication:
        return True
    if max_failures_share is not None:
        return tiles_failed > max_failures_share * tiles_requested
    if isinstance(classify_fault(fault), Final):
        return not fault.concerns_one_tile
    return not (fault.concerns_one_tile or others_answered)


def may_improve(error: BaseException) -> bool:
    """Return whether a later download may succeed although this error ended one.

    A rejected key, a full cache or an invalid setting stays as it is until somebody changes it.
    """
    if isinstance(error, RateLimitedError):
        return True
    return not isinstance(classify_provider_error(error), Final)


def describe_fault(error: SatelliteProviderError | RateLimitedError) -> str:
    """Return why a call failed, in few words."""
    fault = ProviderFault.RATE_LIMITED if isinstance(error, RateLimitedError) else error.fault
    if fault is None:
        return "provider failed"
    status = error.status if isinstance(error, SatelliteProviderError) else None
    return _DESCRIPTIONS.get(fault) or f"HTTP {status}"


def find_overload(error: BaseException | None) -> str | None:
    """Return the sign of overload in a failed call, in short, or ``None``: 429, 503, a timeout."""
    if not isinstance(error, SatelliteProviderError) or error.fault is None:
        return None
    if error.fault is ProviderFault.RATE_LIMITED:
        return "429"
    if error.status in _OVERLOADED:
        return str(error.status)
    return "timeout" if error.fault in _TIMEOUTS else None


def classify_provider_error(error: BaseException) -> ErrorClass:
    """Classify an exception raised by a provider call. Anything but a provider fault is final."""
    if isinstance(error, SatelliteProviderError) and error.fault is not None:
        return classify_fault(error.fault, error.retry_after_s)
    return Final()


_DESCRIPTIONS = {
    ProviderFault.UNREACHABLE: "connection failed",
    ProviderFault.TIMED_OUT: "timeout",
    ProviderFault.TOO_SLOW: "too slow",
    ProviderFault.RATE_LIMITED: "rate limited",
    ProviderFault.TRUNCATED: "incomplete response",
    ProviderFault.DAMAGED: "sha256 mismatch",
    ProviderFault.NOT_FOUND: "not found",
    ProviderFault.UNAUTHORIZED: "API key rejected",
    ProviderFault.INSECURE: "TLS failed",
    ProviderFault.SCHEMA: "invalid response",
    ProviderFault.TOO_LARGE: "too large",
}
"""The others are named by their HTTP status."""
_OVERLOADED = {503, 504}
_TIMEOUTS = {ProviderFault.TIMED_OUT, ProviderFault.TOO_SLOW}
_CLIENT_ERRORS, _SERVER_ERRORS = 400, 500
_BY_STATUS = {
    204: ProviderFault.NOT_FOUND,  # the usual response of tile servers for a missing tile
    401: ProviderFault.UNAUTHORIZED,
    403: ProviderFault.UNAUTHORIZED,
    404: ProviderFault.NOT_FOUND,
    408: ProviderFault.TIMED_OUT,
    410: ProviderFault.NOT_FOUND,
    429: ProviderFault.RATE_LIMITED,
}
