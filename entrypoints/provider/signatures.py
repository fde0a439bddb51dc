"""The signature of an upload: Ed25519 over method, path, body, key, time and flight."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

from attrs import frozen
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tileferry.domain.checks import is_name
from tileferry.entrypoints.provider.answers import RefusalError

HEADERS = ("Idempotency-Key", "X-Flight-Id", "X-Timestamp", "X-Public-Key", "X-Signature")
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_HEADER_CHARS_MAX = 200


@frozen(kw_only=True)
class SignedUpload:
    """An upload whose signature holds."""

    idempotency_key: str
    flight_id: str
    timestamp: str
    body: bytes
    body_sha256: str


def verified(method: str, path: str, headers: Mapping[str, str], body: bytes) -> SignedUpload:
    """Check who sent this, and that not a byte of it was changed."""
    key, flight_id, timestamp, public_key, signature = (_header(headers, name) for name in HEADERS)
    if not is_name(flight_id):
        raise RefusalError(400, "bad_header", "X-Flight-Id is not a plain name")
    _check_time(timestamp)
    digest = sha256(body).hexdigest()
    signed = "\n".join((method, path, digest, key, timestamp, flight_id)).encode("ascii")
    signer = Ed25519PublicKey.from_public_bytes(_raw("X-Public-Key", public_key, _KEY_BYTES))
    try:
        signer.verify(_raw("X-Signature", signature, _SIGNATURE_BYTES), signed)
    except InvalidSignature as error:
        message = "X-Signature does not fit method, path, body, key, timestamp and flight"
        raise RefusalError(403, "bad_signature", message) from error
    return SignedUpload(
        idempotency_key=key,
        flight_id=flight_id,
        timestamp=timestamp,
        body=body,
        body_sha256=digest,
    )


def _header(headers: Mapping[str, str], name: str) -> str:
    text = headers.get(name, "")
    if not (0 < len(text) <= _HEADER_CHARS_MAX and text.isascii() and text.isprintable()):
        message = f"{name} must be given, as at most {_HEADER_CHARS_MAX} plain characters"
        raise RefusalError(400, "bad_header", message)
    return text


def _check_time(text: str) -> None:
    # How old it is does not matter: a repeat after a crash carries the first one's signature.
    try:
        known_zone = datetime.fromisoformat(text).utcoffset() is not None
    except ValueError:
        known_zone = False
    if not known_zone:
        message = "X-Timestamp must be a time with its zone, such as 2026-11-01T12:00:00Z"
        raise RefusalError(400, "bad_header", message)


def _raw(name: str, text: str, length: int) -> bytes:
    try:
        raw = b64decode(text, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != length:
        message = f"{name} must be the base64 of {length} bytes"
        raise RefusalError(400, "bad_header", message)
    return raw
