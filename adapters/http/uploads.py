"""Uploads of captured tiles: their multipart format, the POST, and the uploader built on it."""

import base64
import logging
from collections.abc import Iterable, Iterator
from hashlib import sha256

import httpx
import msgspec
from attrs import define, evolve, field

from tileferry.adapters.http.deadlines import OutgoingBody, send_within
from tileferry.adapters.http.errors import call_translating_errors
from tileferry.adapters.http.provider import TILES_PATH
from tileferry.adapters.http.responses import (
    check_content_type,
    get_api_key,
    read_body,
    to_provider_error,
)
from tileferry.adapters.http.transport import HttpxResponse, ResponseLimits
from tileferry.application import FlightUpload, RetryManager, UploadSettings
from tileferry.application.download.provider_calls import to_schema_error
from tileferry.application.ports.cache import CacheLock
from tileferry.application.ports.clock import Background, Clock
from tileferry.application.ports.progress import NULL_LISTENER, BatchSent, ProgressListener
from tileferry.application.ports.tiles import TileMetadataStore, TileStore
from tileferry.application.ports.uploads import (
    EnvelopeStore,
    FlightRecords,
    SigningKeys,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.redaction import redact_excerpt
from tileferry.domain.tiles import (
    Batch,
    PerTileStatus,
    SendingLimits,
    SignedEnvelope,
    TileMetadata,
    TileUploadStatus,
    UploadBatchReport,
    UploadRequest,
)

_PIECE_BYTES = 256 * 1024
_REASON_CHARS_MAX = 1_000


def build_boundary(batch: Batch) -> str:
    """Return the multipart boundary, derived from the batch's key."""
    return f"tileferry-{sha256(batch.key.encode()).hexdigest()[:32]}"


def compute_body_size(batch: Batch) -> int:
    """Return the size of the body, without reading the tiles."""
    frame = sum(map(len, iter_body(batch, (b"" for _ in batch.tiles))))
    return frame + sum(tile.size for tile in batch.tiles)


def iter_body(batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the body in pieces; ``contents`` are the tiles' bytes in the manifest's order.

    Small tiles share a piece, because sending a piece has a fixed cost.
    """
    boundary = build_boundary(batch)
    piece = [_build_part_header(boundary, "manifest", "application/json"), batch.manifest]
    waiting = len(batch.manifest)
    for tile, content in zip(batch.tiles, contents, strict=True):
        header = _build_part_header(boundary, str(tile.tile_id), "application/octet-stream")
        piece += (b"\r\n", header, content)
        waiting += len(content)
        if waiting >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, waiting = [], 0
    yield b"".join([*piece, f"\r\n--{boundary}--\r\n".encode()])


def _build_part_header(boundary: str, part: str, content_type: str) -> bytes:
    return (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{part}"; filename="{part}"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    ).encode()


def parse_upload_response(
    content: bytes, batch: Batch, *, bytes_max: int, secret: str = ""
) -> tuple[PerTileStatus, ...]:
    """Parse a response and return its results in batch order, without our key in any reason.

    Errors name the invalid field.
    """
    plain = _parse_plain_response(content, batch) if len(content) <= bytes_max else None
    if plain is not None:
        return plain
    answer = parse_json(content, field="answer", bytes_max=bytes_max)
    results = JsonObject.from_value(answer, "answer").get_list("results")
    expected = {str(tile.tile_id): tile.tile_id for tile in batch.tiles}
    found: dict[str, PerTileStatus] = {}
    for index, line in enumerate(results):
        data = JsonObject.from_value(line, f"answer.results[{index}]")
        tile = data.fields.get("tile_id")
        if not isinstance(tile, str) or tile not in expected:
            raise data.build_error("tile_id", "is not a tile of the batch")
        if tile in found:
            raise data.build_error("tile_id", "is listed twice")
        status, reason = data.get_enum("status", TileUploadStatus), data.fields.get("reason")
        if status is TileUploadStatus.UNREADABLE:
            raise data.build_error("status", "is not a status that a provider may return")
        if reason is not None and not isinstance(reason, str):
            raise data.build_error("reason", "must be text, or null")
        shown = None if reason is None else redact_excerpt(reason[:_REASON_CHARS_MAX], secret)
        found[tile] = PerTileStatus(tile_id=expected[tile], status=status, reason=shown)
    missing = next((tile for tile in expected if tile not in found), None)
    if missing is not None:
        raise InvalidValueError(
            field="answer.results", value=missing, problem="has no entry for this tile"
        )
    return tuple(found[tile] for tile in expected)


class _Result(msgspec.Struct, gc=False):
    tile_id: str
    status: str
    reason: msgspec.UnsetType | None = msgspec.UNSET


class _Answer(msgspec.Struct):
    results: list[_Result]


_ANSWER = msgspec.json.Decoder(_Answer)
_ACKNOWLEDGED = {status.value: status for status in TileUploadStatus if status.acknowledged}


def _parse_plain_response(content: bytes, batch: Batch) -> tuple[PerTileStatus, ...] | None:
    """Return the results of a response that acknowledges each tile, in batch order, and no more.

    The decoder skips unknown fields unseen, and keeps the last of two equal keys. Every key has a
    colon, and no text here has one: further keys make more colons than these.
    """
    try:
        results = _ANSWER.decode(content).results
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    keys = 1 + sum(2 + (result.reason is None) for result in results)
    if len(results) != len(batch.tiles) or content.count(b":") != keys:
        return None
    found: list[PerTileStatus] = []
    for tile, result in zip(batch.tiles, results, strict=True):
        status = _ACKNOWLEDGED.get(result.status)
        if status is None or result.tile_id != str(tile.tile_id):
            return None
        found.append(PerTileStatus(tile_id=tile.tile_id, status=status))
    return tuple(found)


_OK = 200
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_LEEWAY_S = 1.0


@define(kw_only=True)
class HttpUploadProvider:
    """Posts batches through a client that has the provider's address and key."""

    client: httpx.Client
    clock: Clock
    limits: ResponseLimits = field(factory=ResponseLimits)
    sending: SendingLimits = field(factory=SendingLimits)
    path: str = TILES_PATH
    progress: ProgressListener = NULL_LISTENER
    """Receives ``BatchSent`` when a batch is sent and its answer is awaited."""

    def iter_body(self, batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the request body of a batch."""
        return iter_body(batch, contents)

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        """Post a batch as a stream, and return the provider's result for each tile."""
        url = f"{str(self.client.base_url).rstrip('/')}{self.path}"
        size_bytes = compute_body_size(envelope.batch)
        return call_translating_errors(
            lambda: send_within(
                self.sending.compute_deadline_s(size_bytes),
                self.limits.deadline_s
                + _LEEWAY_S,  # a slow response is reported as slow before this deadline
                lambda outgoing: self._post(envelope, contents, outgoing, size_bytes),
                on_sent=lambda: self.progress(_describe_sent(envelope.batch)),
            ),
            lambda: url,
            secret=get_api_key(self.client),
        )

    @property
    def _timeout(self) -> httpx.Timeout:
        """Allow the first byte of the response as much time as the whole response.

        On a slow link, sent data can stay in this machine's buffers for a minute, and the provider
        needs time to check the whole batch.
        """
        usual = self.client.timeout
        return httpx.Timeout(
            connect=usual.connect, read=self.limits.deadline_s, write=usual.write, pool=usual.pool
        )

    def _post(
        self,
        envelope: SignedEnvelope,
        contents: Iterable[bytes],
        outgoing: OutgoingBody,
        size_bytes: int,
    ) -> tuple[PerTileStatus, ...]:
        batch = envelope.batch
        request = self.client.build_request(
            "POST",
            self.path,
            content=outgoing.stream(self.iter_body(batch, contents)),
            headers={
                "Accept-Encoding": "identity",
                "Content-Type": f"multipart/form-data; boundary={build_boundary(batch)}",
                "Content-Length": str(size_bytes),
                "Idempotency-Key": batch.key,
                "X-Flight-Id": batch.flight_id,
                "X-Timestamp": envelope.timestamp,
                "X-Public-Key": base64.b64encode(envelope.public_key).decode(),
                "X-Signature": base64.b64encode(envelope.signature).decode(),
            },
            timeout=self._timeout,
        )
        response = self.client.send(request, stream=True, follow_redirects=False)
        begun_s = self.clock.monotonic()  # the response's pace is measured from here
        answer = HttpxResponse(response)
        try:
            if answer.status != _OK:
                raise to_provider_error(answer, get_api_key(self.client), self.clock)
            check_content_type(answer, family="application/json")
            content = read_body(
                answer,
                bytes_max=_ANSWER_BYTES_MAX,
                limits=self.limits,
                clock=self.clock,
                started_s=begun_s,
            )
            return parse_upload_response(
                content, batch, bytes_max=_ANSWER_BYTES_MAX, secret=get_api_key(self.client)
            )
        except InvalidValueError as error:
            raise evolve(to_schema_error(error), url=answer.url) from None
        finally:
            response.close()


def _describe_sent(batch: Batch) -> BatchSent:
    return BatchSent(tiles=len(batch.tiles), size_bytes=sum(tile.size for tile in batch.tiles))


@define(kw_only=True)
class HttpTileUploader:
    """Uploads flights to the provider that ``http_client`` is configured for, one pass per call.

    The client has the provider's address as its ``base_url`` and the key in its ``Authorization``
    header; ``new_client`` creates a safe one.
    """

    http_client: httpx.Client
    tile_store: TileStore
    tile_metadata_store: TileMetadataStore
    envelope_store: EnvelopeStore
    flight_records: FlightRecords
    lock: CacheLock
    keys: SigningKeys
    retry: RetryManager
    logger: logging.Logger
    clock: Clock
    settings: UploadSettings = field(factory=UploadSettings)
    limits: ResponseLimits = field(factory=ResponseLimits)
    progress: ProgressListener = NULL_LISTENER
    background: Background | None = None
    _upload: FlightUpload = field(init=False)

    @_upload.default
    def _assemble(self) -> FlightUpload:
        return FlightUpload(
            provider=HttpUploadProvider(
                client=self.http_client,
                clock=self.clock,
                limits=self.limits,
                progress=self.progress,
            ),
            tile_store=self.tile_store,
            tile_metadata_store=self.tile_metadata_store,
            envelopes=self.envelope_store,
            flight_records=self.flight_records,
            keys=self.keys,
            lock=self.lock,
            retry=self.retry,
            clock=self.clock,
            logger=self.logger,
            settings=self.settings,
            progress=self.progress,
            background=self.background,
        )

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Upload the pending tiles of a flight, and return a report."""
        return self._upload.upload_pending_tiles(request)

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield the pending tiles of a flight, without sending them."""
        return self._upload.enumerate_pending_tiles(flight_id)

    def close_counted(self) -> None:
        """Close the envelopes whose rejections have been counted."""
        self._upload.close_counted()

    def confirm_flight_state(self) -> None:
        """Raise unless the aircraft is on the ground."""
        self._upload.confirm_flight_state()
