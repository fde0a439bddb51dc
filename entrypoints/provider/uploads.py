"""Taking uploads in: each tile once, and each answer again for whoever lost it."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from attrs import evolve, frozen

from tileferry.domain.tiles import TileId, TileUploadStatus
from tileferry.entrypoints.provider.answers import Answer, RefusalError, json_answer
from tileferry.entrypoints.provider.manifest import Manifest, ManifestTile
from tileferry.entrypoints.provider.multipart import parts_of
from tileferry.entrypoints.provider.record import Record
from tileferry.entrypoints.provider.signatures import SignedUpload

KEYS_MAX = 10_000
TILES_MAX = 1_000_000

Refuse = Callable[[TileId], str | None]


@frozen
class _Answered:
    body_sha256: str
    answer: Answer


class UploadDesk:
    """Knows the answers that it gave and the tiles that it has; the oldest it forgets in time.

    All of one upload happens without a pause, so that two uploads cannot get between each other.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._tiles: OrderedDict[tuple[TileId, str], None] = OrderedDict()

    def take(self, upload: SignedUpload, content_type: str, refuse: Refuse) -> Answer:
        """Carry an upload out, or repeat the answer to the one that it repeats."""
        before = self._answered.get(upload.idempotency_key)
        if before is None:
            answer = json_answer({"results": self._results(upload, content_type, refuse)})
            self._answered[upload.idempotency_key] = _Answered(upload.body_sha256, answer)
            _forget(self._answered, KEYS_MAX)
            return answer
        if before.body_sha256 != upload.body_sha256:
            message = "Idempotency-Key was used with another body; use a new key for a new body"
            raise RefusalError(409, "key_conflict", message)
        replayed = {**before.answer.headers, "Idempotent-Replayed": "true"}
        return evolve(before.answer, headers=replayed)

    def _results(
        self, upload: SignedUpload, content_type: str, refuse: Refuse
    ) -> list[dict[str, Any]]:
        parts = parts_of(content_type, upload.body)
        manifest = Manifest.of(parts)
        if manifest.flight_id != upload.flight_id:
            message = "manifest: flight_id is not that of X-Flight-Id"
            raise RefusalError(400, "bad_manifest", message)
        results = []
        for tile, part in zip(manifest.tiles, parts[1:], strict=True):
            status, reason = self._judge(tile, part.content, refuse)
            self._record.uploaded(
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
        self, tile: ManifestTile, content: bytes, refuse: Refuse
    ) -> tuple[TileUploadStatus, str | None]:
        reason = _mismatch(tile, content) or refuse(tile.tile_id)
        if reason is not None:
            return TileUploadStatus.REJECTED, reason
        if (tile.tile_id, tile.sha256) in self._tiles:
            return TileUploadStatus.DUPLICATE, None
        self._tiles[tile.tile_id, tile.sha256] = None
        _forget(self._tiles, TILES_MAX)
        return TileUploadStatus.ACCEPTED, None


def _mismatch(tile: ManifestTile, content: bytes) -> str | None:
    if len(content) != tile.size:
        return f"the manifest says {tile.size} bytes, and {len(content)} came"
    if sha256(content).hexdigest() != tile.sha256:
        return "the bytes do not have the manifest's sha256"
    return None


def _forget(known: OrderedDict[Any, Any], kept_max: int) -> None:
    while len(known) > kept_max:
        known.popitem(last=False)
