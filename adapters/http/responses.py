"""Reading responses of an untrusted provider, with limits on size, time and format."""

import base64
import binascii
import re
import zlib
from datetime import UTC, datetime
from hashlib import sha256, sha512
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx

from tileferry.adapters.http.transport import Chunk, ResponseLimits, TransportResponse
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import ResponseSchemaError, SatelliteProviderError
from tileferry.domain.redaction import redact_excerpt, redact_likely_keys
from tileferry.domain.retry import parse_retry_after
from tileferry.domain.text import printable
from tileferry.domain.tiles import (
    Picture,
    PictureError,
    PictureFlaw,
    ProviderFault,
    fault_from_status,
    inspect_picture,
)

PARTS_MAX = 1_024
_EXCERPT_BYTES = 512
_ERROR_BODY_BYTES = 16 * 1024
"""Close the connection rather than read a longer body of an error response."""
EXCERPT_S = 2.0
_DIGEST = re.compile(r"(sha-256|sha-512) *= *:([A-Za-z0-9+/=]{1,128}):", re.IGNORECASE)
_NAMED = re.compile(r"(?:sha-256|sha-512) *=", re.IGNORECASE)
_GZIP_OR_ZLIB = 32 + 15
_CODINGS = {"gzip", "x-gzip", "deflate"}
_UNLABELLED = {"", "application/octet-stream", "binary/octet-stream"}
_REDIRECTS_MAX = 3
_REDIRECT_STATUSES = {301, 302, 303, 307, 308}
_LOCATION = re.compile(r"[!-\[\]-~]{1,2000}", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PICTURE_FAULTS = {
    PictureFlaw.CUT: ProviderFault.TRUNCATED,
    PictureFlaw.DAMAGED: ProviderFault.DAMAGED,
}


def read_body(
    answer: TransportResponse,
    *,
    bytes_max: int,
    limits: ResponseLimits,
    clock: Clock,
    started_s: float,
) -> bytes:
    """Return the body, decoded; it has the declared length, and at most ``bytes_max`` bytes."""
    url = answer.url
    _check_encoding(answer, limits)
    declared = _parse_content_length(answer, url)
    if declared is not None and declared > bytes_max:
        raise _too_large_error(url, declared, bytes_max)
    parts: list[Chunk] = []
    size = merged = 0
    for chunk in answer.chunks():
        size += len(chunk)
        if size > bytes_max:
            raise _too_large_error(url, size, bytes_max)
        parts.append(chunk)
        merged = merge_parts(parts, merged)
        if size == declared:
            continue  # complete: its pace no longer matters
        check_pace(url, size, clock.monotonic() - started_s, limits)
    if declared is not None and size != declared:
        raise SatelliteProviderError(
            reason=f"the response broke off after {size} of {declared} bytes",
            url=url,
            fault=ProviderFault.TRUNCATED,
        )
    content = b"".join(parts)
    return _decompress(url, content, bytes_max) if _get_encoding(answer) else content


def _decompress(url: str, content: bytes, bytes_max: int) -> bytes:
    """Return the content of a gzip or zlib stream, whose checksum proves that it is whole."""
    reader = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
    try:
        plain = reader.decompress(content, bytes_max + 1)
    except zlib.error as error:
        raise SatelliteProviderError(
            reason=f"the compressed response is damaged: {error}",
            url=url,
            fault=ProviderFault.DAMAGED,
        ) from None
    if len(plain) > bytes_max:
        raise _too_large_error(url, len(plain), bytes_max)
    if not reader.eof or reader.unused_data:
        problem = "ends too early" if not reader.eof else "has data after its end"
        raise SatelliteProviderError(
            reason=f"the compressed response {problem}", url=url, fault=ProviderFault.TRUNCATED
        )
    return plain


def merge_parts(parts: list[Any], merged: int) -> int:
    """Join the parts after the first ``merged`` ones if they are many; return how many are joined.

    A provider may send single bytes, and each part takes more memory than that.
    """
    if len(parts) - merged < PARTS_MAX:
        return merged
    parts[merged:] = [b"".join(parts[merged:])]
    return merged + 1


def read_excerpt(answer: TransportResponse, *, secret: str, clock: Clock) -> str:
    """Return the beginning of an error's body, with our key removed.

    Only what arrives within a moment is read.
    """
    content = b""
    until_s = clock.monotonic() + EXCERPT_S
    try:
        for chunk in answer.chunks():
            content += chunk
            if len(content) >= _EXCERPT_BYTES or clock.monotonic() > until_s:
                break
    except Exception:  # noqa: BLE001, S110  # the call has failed already; the excerpt is optional
        pass
    text = content[:_EXCERPT_BYTES].decode("utf-8", "replace")
    return printable(redact_excerpt(text, secret))


def check_tile(answer: TransportResponse, content: bytes) -> tuple[bytes, Picture]:
    """Return the sha256 of a tile and what its image is; reject content that contradicts its
    headers or is not whole.

    A length or a digest proves that what was sent has arrived. The end of a connection proves
    nothing, and neither does a digest that is not computed. So the image must be whole as well.
    """
    if not content or answer.header("content-range") is not None:
        problem = "is partial, which was not requested" if content else "is empty"
        raise SatelliteProviderError(
            reason=f"the response {problem}", url=answer.url, fault=ProviderFault.TRUNCATED
        )
    digest = sha256(content).digest()
    if not _get_encoding(answer):  # else it is the digest of the compressed form
        _check_digest(answer, content, digest)
    try:
        picture = inspect_picture(content)
    except PictureError as error:
        if error.flaw is PictureFlaw.UNFIT:
            raise _schema_error(answer.url, error.field, error.problem) from None
        fault = _PICTURE_FAULTS[error.flaw]
        raise SatelliteProviderError(
            reason=f"the image {error.problem}", url=answer.url, fault=fault
        ) from None
    return digest, picture


def _check_digest(answer: TransportResponse, content: bytes, digest: bytes) -> None:
    """Check the content against every sha-256 and sha-512 in ``Repr-Digest``."""
    header = answer.header("repr-digest")
    if header is None:
        return
    found = _DIGEST.findall(header)
    try:
        expected = [(name.lower(), base64.b64decode(text, validate=True)) for name, text in found]
    except binascii.Error:
        expected = []
    if len(expected) != len(_NAMED.findall(header)):
        raise _schema_error(answer.url, "Repr-Digest", "is not a valid digest")
    found_512 = any(name == "sha-512" for name, _ in expected)
    actual = {"sha-256": digest, "sha-512": sha512(content).digest() if found_512 else b""}
    if any(actual[name] != each for name, each in expected):
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


def check_tile_type(answer: TransportResponse, limits: ResponseLimits) -> None:
    """Reject a media type that a tile cannot have; the content decides what it is."""
    kind = (answer.header("content-type") or "").partition(";")[0].strip().lower()
    if not (limits.is_plain_server and kind in _UNLABELLED):
        check_content_type(answer, family=limits.family)


def _get_encoding(answer: TransportResponse) -> str:
    """Return the content coding; empty if there is none."""
    coding = (answer.header("content-encoding") or "").strip().lower()
    return "" if coding == "identity" else coding


def _check_encoding(answer: TransportResponse, limits: ResponseLimits) -> None:
    coding = _get_encoding(answer)
    if coding and not (limits.is_plain_server and coding in _CODINGS):
        raise _schema_error(answer.url, "Content-Encoding", f"{coding} was not requested")


def count_useful_bytes(answer: TransportResponse, limits: ResponseLimits) -> int:
    """Return how much of a tile's body to receive: none if the head rules it out."""
    if answer.status != HTTPStatus.OK:
        return _ERROR_BODY_BYTES
    try:
        check_tile_type(answer, limits)
        _check_encoding(answer, limits)
    except SatelliteProviderError:
        return 0
    return limits.tile_bytes_max


def _parse_content_length(answer: TransportResponse, url: str) -> int | None:
    text = answer.header("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004  # 64 bits
        raise _schema_error(url, "Content-Length", f"{text!r} is not a valid length")
    return int(text)


def check_pace(url: str, size: int | None, elapsed_s: float, limits: ResponseLimits) -> None:
    """Reject a response that is late, or whose body arrives too slowly; ``None``: no body yet."""
    is_slow = (
        size is not None
        and elapsed_s > limits.grace_s
        and size < limits.rate_bytes_s_min * elapsed_s
    )
    if is_slow or elapsed_s > limits.deadline_s:
        raise SatelliteProviderError(
            reason=f"too slow: {size or 0} bytes in {elapsed_s:.1f} s",
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
        reason=_describe_redirect(answer) or answer.reason.lower() or "refused",
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


def find_redirect(answer: TransportResponse, limits: ResponseLimits, hops: int) -> str | None:
    """Return the URL to follow after ``hops`` redirects, or ``None``.

    Only plain tile servers may redirect, and only to themselves: the URL has the address of the
    request, not the one in the response.
    """
    if answer.status not in _REDIRECT_STATUSES or not limits.is_plain_server:
        return None
    location = answer.header("location") or ""
    if hops >= _REDIRECTS_MAX or not _LOCATION.fullmatch(location):
        return None
    try:
        own, target = urlsplit(answer.url), urlsplit(urljoin(answer.url, location))
        is_same = _get_origin(own) == _get_origin(target) and "@" not in target.netloc
    except ValueError:  # an invalid port or address
        return None
    query = f"?{target.query}" if target.query else ""
    return f"{own.scheme}://{own.netloc}{target.path or '/'}{query}" if is_same else None


def _get_origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _DEFAULT_PORTS.get(url.scheme)


def _describe_redirect(answer: TransportResponse) -> str | None:
    """Return where a response redirects to, without what may be a key."""
    location = answer.header("location")
    if not location or answer.status not in _REDIRECT_STATUSES:
        return None
    try:
        target = urlsplit(urljoin(answer.url, location))
        place = f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}"
    except ValueError:
        return "redirects to an invalid address"
    return f"redirects to {printable(redact_likely_keys(place))}"
