"""Receives uploads: verifies the signature, parses the multipart body and manifest, and answers."""

import binascii
import json
import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NoReturn

from attrs import Attribute, define, evolve, field, frozen
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId, TileUploadStatus
from tileferry.domain.validation import as_float, aware, integer, is_name, positive
from tileferry.entrypoints.provider.request_record import RequestRecord
from tileferry.entrypoints.provider.responses import ProviderResponse, RefusalError, json_response

SIGNED_HEADERS = ("Idempotency-Key", "X-Flight-Id", "X-Timestamp", "X-Public-Key", "X-Signature")
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_HEADER_CHARS_MAX = 200


@frozen(kw_only=True)
class SignedUpload:
    """An upload with a valid signature."""

    idempotency_key: str
    flight_id: str
    timestamp: str
    body: bytes
    body_sha256: str


def verify_signature(
    method: str, path: str, headers: Mapping[str, str], body: bytes
) -> SignedUpload:
    """Verify the sender's signature over method, path, body, key, time and flight."""
    key, flight_id, timestamp, public_key, signature = (
        _read_header(headers, name) for name in SIGNED_HEADERS
    )
    if not is_name(flight_id):
        raise RefusalError(400, "bad_header", "X-Flight-Id is not a plain name")
    _check_time(timestamp)
    digest = sha256(body).hexdigest()
    signed = "\n".join((method, path, digest, key, timestamp, flight_id)).encode("ascii")
    signer = Ed25519PublicKey.from_public_bytes(
        _decode_base64("X-Public-Key", public_key, _KEY_BYTES)
    )
    try:
        signer.verify(_decode_base64("X-Signature", signature, _SIGNATURE_BYTES), signed)
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


def _read_header(headers: Mapping[str, str], name: str) -> str:
    text = headers.get(name, "")
    if not (0 < len(text) <= _HEADER_CHARS_MAX and text.isascii() and text.isprintable()):
        message = f"{name} must be given, as at most {_HEADER_CHARS_MAX} plain characters"
        raise RefusalError(400, "bad_header", message)
    return text


def _check_time(text: str) -> None:
    # The age of the timestamp is not checked: a repeat after a crash carries the first signature.
    try:
        known_zone = datetime.fromisoformat(text).utcoffset() is not None
    except ValueError:
        known_zone = False
    if not known_zone:
        message = "X-Timestamp must be a time with a time zone, such as 2026-11-01T12:00:00Z"
        raise RefusalError(400, "bad_header", message)


def _decode_base64(name: str, text: str, length: int) -> bytes:
    try:
        raw = b64decode(text, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != length:
        message = f"{name} must be the base64 of {length} bytes"
        raise RefusalError(400, "bad_header", message)
    return raw


PARTS_MAX = 1_001
_HEADER_BYTES_MAX = 4_096


@frozen
class BodyPart:
    """One part: its name, its content type and its bytes."""

    name: str
    content_type: str
    content: bytes


@define
class _PartReader:
    """Collects the pieces that the parser finds."""

    parts: list[BodyPart] = field(factory=list)
    ended: bool = False
    _name: bytearray = field(factory=bytearray)
    _value: bytearray = field(factory=bytearray)
    _headers: dict[bytes, bytes] = field(factory=dict)
    _content: bytearray = field(factory=bytearray)

    def on_part_begin(self) -> None:
        if len(self.parts) == PARTS_MAX:
            raise RefusalError(413, "too_many_parts", f"a batch has at most {PARTS_MAX - 1} tiles")
        self._headers, self._content = {}, bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]
        self._check(self._name)

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check(self._value)

    def on_header_end(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name, self._value = bytearray(), bytearray()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def on_part_end(self) -> None:
        disposition, options = parse_options_header(self._headers.get(b"content-disposition"))
        if disposition != b"form-data" or b"name" not in options:
            raise RefusalError(400, "bad_multipart", "a part has no name")
        name = options[b"name"].decode("latin-1")
        kind = self._headers.get(b"content-type", b"").decode("latin-1")
        self.parts.append(BodyPart(name, kind, bytes(self._content)))

    def on_end(self) -> None:
        self.ended = True

    def _check(self, text: bytearray) -> None:
        if len(text) > _HEADER_BYTES_MAX:
            raise RefusalError(400, "bad_multipart", "a part's header is too long")


def parse_parts(content_type: str, body: bytes) -> list[BodyPart]:
    """Split the body of a ``multipart/form-data`` request."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        message = "an upload is multipart/form-data with a boundary"
        raise RefusalError(415, "bad_content_type", message)
    reader = _PartReader()
    names = (name for name in dir(reader) if name.startswith("on_"))
    parser = MultipartParser(options[b"boundary"], {name: getattr(reader, name) for name in names})  # type: ignore[arg-type]  # a TypedDict with these names
    try:
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise RefusalError(400, "bad_multipart", str(error)) from error
    if not reader.ended:
        raise RefusalError(400, "bad_multipart", "the body ends before its last boundary")
    return reader.parts


_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TILE_KEYS = ("tile_id", "captured_at", "resolution_m_per_px", "sha256", "size")


def _check_digest(_instance: object, _attribute: "Attribute[Any]", value: object) -> None:
    if not (isinstance(value, str) and _SHA256.fullmatch(value)):
        raise InvalidValueError(
            field="sha256", value=value, problem="must be 64 lower-case hex digits"
        )


@frozen(kw_only=True)
class ManifestTile:
    """One tile of the batch."""

    tile_id: TileId
    captured_at: datetime = field(validator=aware)
    resolution_m_per_px: float = field(converter=as_float, validator=positive)
    sha256: str = field(validator=_check_digest)
    size: int = field(validator=integer(0, TILE_BYTES_MAX))


@frozen
class UploadManifest:
    """The batch: its flight and its tiles in order."""

    flight_id: str
    tiles: list[ManifestTile]

    @classmethod
    def from_parts(cls, parts: list[BodyPart]) -> "UploadManifest":
        """Parse the first part, and check that the other parts are the tiles it names."""
        if not parts or parts[0].name != "manifest":
            _refuse("the first part must be called manifest")
        if parts[0].content_type.partition(";")[0].strip() != "application/json":
            _refuse("its Content-Type must be application/json")
        body = _parse_json(parts[0].content)
        if not isinstance(body, dict) or not isinstance(body.get("tiles"), list):
            _refuse("it must be an object with flight_id and tiles")
        tiles = [_parse_tile(entry, f"tiles[{index}]") for index, entry in enumerate(body["tiles"])]
        named = [str(tile.tile_id) for tile in tiles]
        if not tiles or len(set(named)) < len(named):
            _refuse("it must name one tile at least, and each once")
        if named != [part.name for part in parts[1:]]:
            _refuse("after it comes one part for each of its tiles, in its order")
        return cls(str(body.get("flight_id")), tiles)


def _parse_tile(entry: object, at: str) -> ManifestTile:
    if not isinstance(entry, dict) or not set(_TILE_KEYS) <= set(entry):
        _refuse(f"{at} must be an object with {', '.join(_TILE_KEYS)}")
    try:
        return ManifestTile(
            tile_id=TileId.parse(entry["tile_id"]),
            captured_at=datetime.fromisoformat(entry["captured_at"]),
            resolution_m_per_px=entry["resolution_m_per_px"],
            sha256=entry["sha256"],
            size=entry["size"],
        )
    except InvalidValueError as error:
        _refuse(f"{at}: {error}")
    except (TypeError, ValueError):
        _refuse(f"{at}.captured_at must be a time with a time zone")


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=lambda name: _refuse(f"{name} is no number"))
    except (ValueError, RecursionError):
        _refuse("it is not JSON")


def _refuse(problem: str) -> NoReturn:
    raise RefusalError(400, "bad_manifest", f"manifest: {problem}")


KEYS_MAX = 10_000
TILES_MAX = 1_000_000

RefusalCheck = Callable[[TileId], str | None]


@frozen
class _StoredResponse:
    body_sha256: str
    answer: ProviderResponse


class UploadReceiver:
    """Remembers its answers and tiles, and forgets the oldest.

    One upload is processed without awaiting, so two uploads cannot interleave.
    """

    def __init__(self, record: RequestRecord) -> None:
        self._record = record
        self._answered: OrderedDict[str, _StoredResponse] = OrderedDict()
        self._tiles: OrderedDict[tuple[TileId, str], None] = OrderedDict()

    def receive(
        self, upload: SignedUpload, content_type: str, refuse: RefusalCheck
    ) -> ProviderResponse:
        """Process an upload, or repeat the answer if it is a repeat."""
        before = self._answered.get(upload.idempotency_key)
        if before is None:
            answer = json_response({"results": self._process_tiles(upload, content_type, refuse)})
            self._answered[upload.idempotency_key] = _StoredResponse(upload.body_sha256, answer)
            _drop_oldest(self._answered, KEYS_MAX)
            return answer
        if before.body_sha256 != upload.body_sha256:
            message = "Idempotency-Key was used with another body; use a new key for a new body"
            raise RefusalError(409, "key_conflict", message)
        replayed = {**before.answer.headers, "Idempotent-Replayed": "true"}
        return evolve(before.answer, headers=replayed)

    def _process_tiles(
        self, upload: SignedUpload, content_type: str, refuse: RefusalCheck
    ) -> list[dict[str, Any]]:
        parts = parse_parts(content_type, upload.body)
        manifest = UploadManifest.from_parts(parts)
        if manifest.flight_id != upload.flight_id:
            message = "manifest: flight_id is not that of X-Flight-Id"
            raise RefusalError(400, "bad_manifest", message)
        results = []
        for tile, part in zip(manifest.tiles, parts[1:], strict=True):
            status, reason = self._judge(tile, part.content, refuse)
            self._record.add_upload(
                tile_id=str(tile.tile_id),
                flight_id=upload.flight_id,
                idempotency_key=upload.idempotency_key,
                sha256=tile.sha256,
                size=tile.size,
                status=status.value,
                reason=reason,
            )
            results.append({"tile_id": str(tile.tile_id), "status": status.value, "reason": reason})
        return results

    def _judge(
        self, tile: ManifestTile, content: bytes, refuse: RefusalCheck
    ) -> tuple[TileUploadStatus, str | None]:
        reason = _find_mismatch(tile, content) or refuse(tile.tile_id)
        if reason is not None:
            return TileUploadStatus.REJECTED, reason
        if (tile.tile_id, tile.sha256) in self._tiles:
            return TileUploadStatus.DUPLICATE, None
        self._tiles[tile.tile_id, tile.sha256] = None
        _drop_oldest(self._tiles, TILES_MAX)
        return TileUploadStatus.ACCEPTED, None


def _find_mismatch(tile: ManifestTile, content: bytes) -> str | None:
    if len(content) != tile.size:
        return f"the manifest says {tile.size} bytes, and {len(content)} came"
    if sha256(content).hexdigest() != tile.sha256:
        return "the bytes do not have the manifest's sha256"
    return None


def _drop_oldest(known: OrderedDict[Any, Any], kept_max: int) -> None:
    while len(known) > kept_max:
        known.popitem(last=False)
