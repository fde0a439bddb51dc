"""Reading responses of an untrusted provider, with limits on size, time and format."""

import base64
import binascii
import re
from datetime import UTC, datetime

import httpx
from attrs import field, frozen

from tileferry.adapters.http.redact import REDACTED, redact_key
from tileferry.adapters.http.transport import Chunk, TransportResponse
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import ResponseSchemaError, SatelliteProviderError
from tileferry.domain.retry import parse_retry_after
from tileferry.domain.text import printable
from tileferry.domain.tiles import TILE_BYTES_MAX, ProviderFault, fault_from_status
from tileferry.domain.validation import integer, number

_EXCERPT_BYTES = 512
_EXCERPT_S = 2.0
_KEY_CHARS_SHOWN_MAX = 3
_DIGEST = re.compile(r"sha-256 *= *:([A-Za-z0-9+/=]{1,128}):", re.IGNORECASE)
_NAMED = re.compile(r"sha-256 *=", re.IGNORECASE)


@frozen(kw_only=True)
class ResponseLimits:
    """Limits for one response."""

    tile_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1, TILE_BYTES_MAX))
    deadline_s: float = field(default=120.0, validator=number(0.001, 3600))
    """From the call to the last byte; for an upload, from the end of sending."""
    rate_bytes_s_min: float = field(default=1_000.0, validator=number(0))
    """A slower response is aborted after ``grace_s``."""
    grace_s: float = field(default=10.0, validator=number(0))


def read_body(
    answer: TransportResponse,
    *,
    bytes_max: int,
    limits: ResponseLimits,
    clock: Clock,
    started_s: float,
) -> bytes:
    """Return the body; it has exactly the declared length and at most ``bytes_max`` bytes."""
    url = answer.url
    encoding = answer.header("content-encoding") or "identity"
    if encoding.strip().lower() not in {"", "identity"}:
        raise _schema_error(url, "Content-Encoding", f"{encoding} was not requested")
    declared = _parse_content_length(answer, url)
    if declared is not None and declared > bytes_max:
        raise _too_large_error(url, declared, bytes_max)
    parts: list[Chunk] = []
    size = 0
    for chunk in answer.chunks():
        size += len(chunk)
        if size > bytes_max:
            raise _too_large_error(url, size, bytes_max)
        parts.append(chunk)
        if size == declared:
            continue  # complete: its pace no longer matters
        _check_pace(url, size, clock.monotonic() - started_s, limits)
    if declared is not None and size != declared:
        raise SatelliteProviderError(
            reason=f"the response broke off after {size} of {declared} bytes",
            url=url,
            fault=ProviderFault.TRUNCATED,
        )
    return b"".join(parts)


def read_excerpt(answer: TransportResponse, *, secret: str, clock: Clock) -> str:
    """Return the beginning of an error's body, with our key removed.

    Only what arrives within a moment is read.
    """
    content = b""
    until_s = clock.monotonic() + _EXCERPT_S
    try:
        for chunk in answer.chunks():
            content += chunk
            if len(content) >= _EXCERPT_BYTES or clock.monotonic() > until_s:
                break
    except Exception:  # noqa: BLE001, S110  # the call has failed already; the excerpt is optional
        pass
    text = content[:_EXCERPT_BYTES].decode("utf-8", "replace")
    return printable(_redact_excerpt(text, secret) if secret else text)


def _redact_excerpt(text: str, secret: str) -> str:
    """Remove the key, including a part of it at the end of the text."""
    text = redact_key(text, secret)
    for length in range(len(secret) - 1, _KEY_CHARS_SHOWN_MAX, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + REDACTED
    return text


def check_complete(answer: TransportResponse, content: bytes) -> None:
    """Reject an empty or possibly truncated tile: the damage could not be detected later."""
    problem = None
    if not content:
        problem = "the response is empty"
    elif answer.header("content-range") is not None:
        problem = "the response is partial, which was not requested"
    elif not answer.is_framed and answer.header("repr-digest") is None:
        problem = "the response has neither a length nor a digest, so it may be incomplete"
    if problem is not None:
        raise SatelliteProviderError(reason=problem, url=answer.url, fault=ProviderFault.TRUNCATED)


def check_digest(answer: TransportResponse, digest: bytes) -> None:
    """Check the content against every sha-256 in ``Repr-Digest``."""
    header = answer.header("repr-digest") or ""
    try:
        expected = [base64.b64decode(text, validate=True) for text in _DIGEST.findall(header)]
    except binascii.Error:
        expected = []
    if len(expected) != len(_NAMED.findall(header)):
        raise _schema_error(answer.url, "Repr-Digest", "is not a valid digest")
    if any(digest != each for each in expected):
        raise SatelliteProviderError(
            reason="content does not match Repr-Digest",
            url=answer.url,
            fault=ProviderFault.DAMAGED,
        )


def check_content_type(answer: TransportResponse, *, family: str) -> None:
    """Reject any other media type than the requested family, such as an HTML error page."""
    kind = answer.header("content-type") or ""
    if not kind.lower().startswith(family):
        raise _schema_error(answer.url, "Content-Type", f"{kind!r} is not {family}")


def _parse_content_length(answer: TransportResponse, url: str) -> int | None:
    text = answer.header("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004  # 64 bits
        raise _schema_error(url, "Content-Length", f"{text!r} is not a valid length")
    return int(text)


def _check_pace(url: str, size: int, elapsed_s: float, limits: ResponseLimits) -> None:
    slow = elapsed_s > limits.grace_s and size < limits.rate_bytes_s_min * elapsed_s
    if slow or elapsed_s > limits.deadline_s:
        raise SatelliteProviderError(
            reason=f"too slow: {size} bytes in {elapsed_s:.1f} s",
            url=url,
            fault=ProviderFault.TOO_SLOW,
        )


def _too_large_error(url: str, size: int, bytes_max: int) -> SatelliteProviderError:
    return SatelliteProviderError(
        reason=f"the response has {size} bytes or more; the limit is {bytes_max}",
        url=url,
        fault=ProviderFault.TOO_LARGE,
    )


def _schema_error(url: str, name: str, problem: str) -> ResponseSchemaError:
    return ResponseSchemaError(
        reason=f"response schema mismatch: {printable(problem)}",
        url=url,
        field=name,
        fault=ProviderFault.SCHEMA,
    )


RETRY_AFTER_S_MAX = 24 * 3600.0
"""Upper bound of a parsed ``Retry-After``; the retry policy decides how long to wait."""


def get_authorization(client: httpx.Client) -> str:
    """Return the client's ``Authorization`` header."""
    return str(client.headers.get("authorization", "Bearer none"))


def get_api_key(client: httpx.Client) -> str:
    """Return the API key in the client's ``Authorization`` header."""
    return get_authorization(client).rpartition(" ")[2]


def to_provider_error(
    answer: TransportResponse, secret: str, clock: Clock
) -> SatelliteProviderError:
    """Return the error for an unsuccessful response, without the key."""
    return SatelliteProviderError(
        reason=answer.reason.lower() or "refused",
        url=answer.url,
        status=answer.status,
        body_excerpt=read_excerpt(answer, secret=secret, clock=clock),
        fault=fault_from_status(answer.status),
        retry_after_s=parse_retry_after(
            answer.header("retry-after"),
            now=datetime.fromtimestamp(clock.now(), UTC),
            cap_s=RETRY_AFTER_S_MAX,
        ),
    )
