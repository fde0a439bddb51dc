"""What can go wrong with a call to the provider, and which of it is worth another try."""

from enum import StrEnum

from tileferry.domain.errors import SatelliteProviderError
from tileferry.domain.retry.classify import ErrorClass, Final, RateLimited, Retryable


class ProviderFault(StrEnum):
    """Why a call failed."""

    UNREACHABLE = "unreachable"
    """No connection, or one that broke."""
    TIMED_OUT = "timed_out"
    TOO_SLOW = "too_slow"
    UNAVAILABLE = "unavailable"
    """The provider says that it is at fault: 5xx."""
    RATE_LIMITED = "rate_limited"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    """The bytes are not those that their digest names."""
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"
    INSECURE = "insecure"
    """TLS failed: the peer is not who it should be, or speaks no protocol that is safe."""
    REDIRECTED = "redirected"
    REFUSED = "refused"
    """Any other answer that is our fault: 4xx."""
    SCHEMA = "schema"
    """An answer in another form than agreed."""
    TOO_LARGE = "too_large"

    @property
    def is_missing_tile(self) -> bool:
        """Whether the provider is well and just does not have the tile."""
        return self is ProviderFault.NOT_FOUND

    @property
    def is_authentication(self) -> bool:
        """Whether nothing can be fetched until somebody mends a key or a certificate."""
        return self in {ProviderFault.UNAUTHORIZED, ProviderFault.INSECURE}

    @property
    def concerns_one_tile(self) -> bool:
        """Whether other tiles may well be fine."""
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
    """Say whether another attempt may help."""
    if fault is ProviderFault.RATE_LIMITED:
        return RateLimited(retry_after_s=retry_after_s)
    return Retryable() if fault in _TRANSIENT_FAULTS else Final()


def fault_from_status(status: int) -> ProviderFault:
    """Say what an answer that is no success means."""
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    if status >= _SERVER_ERRORS:
        return ProviderFault.UNAVAILABLE
    return ProviderFault.REFUSED if status >= _CLIENT_ERRORS else ProviderFault.REDIRECTED


def should_abort_download(
    fault: ProviderFault | None,
    *,
    tiles_failed: int,
    tiles_requested: int,
    max_failures_share: float | None,
) -> bool:
    """Tell whether a tile that did not come ends the whole download.

    A refused key always does. Otherwise so many may fail as the operator allows; where nothing is
    said, single tiles may, and an outage or a rate limit (``None``) is the end.
    """
    if fault is not None and fault.is_authentication:
        return True
    if max_failures_share is not None:
        return tiles_failed > max_failures_share * tiles_requested
    return fault is None or not fault.concerns_one_tile


def classify_provider_error(error: BaseException) -> ErrorClass:
    """Classify what a call to the provider raised; what is no fault of the provider is final."""
    if isinstance(error, SatelliteProviderError) and error.fault is not None:
        return classify_fault(error.fault, error.retry_after_s)
    return Final()


_CLIENT_ERRORS, _SERVER_ERRORS = 400, 500
_BY_STATUS = {
    204: ProviderFault.NOT_FOUND,  # how many tile servers say that there is no tile
    401: ProviderFault.UNAUTHORIZED,
    403: ProviderFault.UNAUTHORIZED,
    404: ProviderFault.NOT_FOUND,
    408: ProviderFault.TIMED_OUT,
    410: ProviderFault.NOT_FOUND,
    429: ProviderFault.RATE_LIMITED,
}
