"""Reading answers of a provider that may send anything: bounded in bytes, in time, in form."""

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
    """What one answer may take."""

    tile_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1, TILE_BYTES_MAX))
    deadline_s: float = field(default=120.0, validator=number(0.001, 3600))
    """From the call to the last byte; of an upload, from when all of it was sent."""
    rate_bytes_s_min: float = field(default=1_000.0, validator=number(0))
    """What comes more slowly is given up, once it has had ``grace_s``."""
    grace_s: float = field(default=10.0, validator=number(0))


def read_body(
    answer: TransportResponse,
    *,
    bytes_max: int,
    limits: ResponseLimits,
    clock: Clock,
    started_s: float,
) -> bytes:
    """Return the body, exactly as long as it was declared, and never more than ``bytes_max``."""
    url = answer.url
    encoding = answer.header("content-encoding") or "identity"
    if encoding.strip().lower() not in {"", "identity"}:
        raise _schema_error(url, "Content-Encoding", f"{encoding} was not asked for")
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
            continue  # it is all there: how long it took does not matter any more
        _check_pace(url, size, clock.monotonic() - started_s, limits)
    if declared is not None and size != declared:
        raise SatelliteProviderError(
            reason=f"the answer broke off after {size} of {declared} bytes",
            url=url,
            fault=ProviderFault.TRUNCATED,
        )
    return b"".join(parts)


def read_excerpt(answer: TransportResponse, *, secret: str, clock: Clock) -> str:
    """Return the beginning of an error's body, in which our own key is never shown.

    It is not waited for: what comes within a moment will do.
    """
    content = b""
    until_s = clock.monotonic() + _EXCERPT_S
    try:
        for chunk in answer.chunks():
            content += chunk
            if len(content) >= _EXCERPT_BYTES or clock.monotonic() > until_s:
                break
    except Exception:  # noqa: BLE001, S110  # it is an error already; its text is a courtesy
        pass
    text = content[:_EXCERPT_BYTES].decode("utf-8", "replace")
    return printable(_redact_excerpt(text, secret) if secret else text)


def _redact_excerpt(text: str, secret: str) -> str:
    """Take the key out, also one that the text ends in the middle of."""
    text = redact_key(text, secret)
    for length in range(len(secret) - 1, _KEY_CHARS_SHOWN_MAX, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + REDACTED
    return text


def check_complete(answer: TransportResponse, content: bytes) -> None:
    """Refuse what is no tile, or may be part of one: nobody could tell later."""
    problem = None
    if not content:
        problem = "the answer is empty"
    elif answer.header("content-range") is not None:
        problem = "the answer is a part only, which was not asked for"
    elif not answer.is_framed and answer.header("repr-digest") is None:
        problem = "the answer has neither a length nor a digest: it may have broken off"
    if problem is not None:
        raise SatelliteProviderError(reason=problem, url=answer.url, fault=ProviderFault.TRUNCATED)


def check_digest(answer: TransportResponse, digest: bytes) -> None:
    """Check what came against ``Repr-Digest``, against each sha-256 that it names."""
    header = answer.header("repr-digest") or ""
    try:
        expected = [base64.b64decode(text, validate=True) for text in _DIGEST.findall(header)]
    except binascii.Error:
        expected = []
    if len(expected) != len(_NAMED.findall(header)):
        raise _schema_error(answer.url, "Repr-Digest", "is no digest")
    if any(digest != each for each in expected):
        raise SatelliteProviderError(
            reason="the bytes are not those that Repr-Digest names",
            url=answer.url,
            fault=ProviderFault.DAMAGED,
        )


def check_content_type(answer: TransportResponse, *, family: str) -> None:
    """Refuse what is not of the family that was asked for, such as a page that says "sorry"."""
    kind = answer.header("content-type") or ""
    if not kind.lower().startswith(family):
        raise _schema_error(answer.url, "Content-Type", f"{kind!r} is not {family}")


def _parse_content_length(answer: TransportResponse, url: str) -> int | None:
    text = answer.header("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004  # 64 bits
        raise _schema_error(url, "Content-Length", f"{text!r} is no length")
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
        reason=f"the answer has {size} bytes or more, and {bytes_max} are the most",
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
"""What is taken down; how much of it is waited is the policy's to say."""


def get_authorization(client: httpx.Client) -> str:
    """Return what a client sends to say who we are."""
    return str(client.headers.get("authorization", "Bearer none"))


def get_api_key(client: httpx.Client) -> str:
    """Return the key in it."""
    return get_authorization(client).rpartition(" ")[2]


def to_provider_error(
    answer: TransportResponse, secret: str, clock: Clock
) -> SatelliteProviderError:
    """Return the error of an answer that is no success; the key is not in it."""
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
