"""Segment stores for tests: tiles, faults, and an index that outlives its process."""

import errno
import itertools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import asdict, evolve

from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import MemoryBlobIndex
from tileferry.application.ports.inventory import (
    DamagedBlob,
    DamagedSegment,
    VerificationFinding,
)
from tileferry.domain.tiles import BlobRef, TileId


def create_tile(number: int) -> TileId:
    return TileId(source="osm", zoom=21, x=number, y=number)


def create_content(number: int, size: int = 500) -> bytes:
    """Bytes that are told from any other tile's."""
    return (sha256(str(number).encode()).digest() * (size // 32 + 1))[:size]


def store_tiles(store: SegmentTileStore, index: MemoryBlobIndex, numbers: Iterable[int]) -> None:
    """Write a group of tiles as the use cases do: bytes durable, then rows."""
    rows = [
        (create_tile(number), store.write_tile(create_tile(number), create_content(number)))
        for number in numbers
    ]
    store.flush()
    for tile_id, blob in rows:
        index.add(tile_id, blob)


def list_segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".c6/segments").iterdir())


def list_damages(findings: Iterable[VerificationFinding]) -> list[DamagedBlob | DamagedSegment]:
    return [item for item in findings if isinstance(item, DamagedBlob | DamagedSegment)]


def create_failing_calls(kind: str, nth: int = 1, error: int = errno.EIO) -> FileCalls:
    """Calls of which the n-th of one kind fails, and those after it work again."""
    real: Callable[..., Any] = getattr(FileCalls(), kind)
    calls = itertools.count(1)

    def call(*args: Any, **named: Any) -> Any:
        if next(calls) == nth:
            raise OSError(error, os.strerror(error))
        return real(*args, **named)

    return evolve(FileCalls(), **{kind: call})


class LoggedBlobIndex(MemoryBlobIndex):
    """Writes each change to a file, and starts from what it finds there."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        for line in log.read_text().splitlines(keepends=True) if log.exists() else []:
            if line.endswith("\n"):
                self._replay(*json.loads(line))
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, tile_id: TileId, blob: BlobRef) -> None:
        self._write("add", str(tile_id), asdict(blob))
        super().add(tile_id, blob)

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        self._write("forget", [str(tile_id) for tile_id in tile_ids])
        return super().forget(tile_ids)

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        self._write("move", [(str(name), asdict(old), asdict(new)) for name, old, new in moves])
        return super().move(moves)

    def tiles(self) -> dict[TileId, BlobRef]:
        return dict(self._blobs)

    def _write(self, *change: object) -> None:
        os.write(self._log, json.dumps(change).encode() + b"\n")

    def _replay(self, kind: str, *details: Any) -> None:
        match kind:
            case "add":
                super().add(TileId.parse(details[0]), _parse_blob(details[1]))
            case "forget":
                super().forget([TileId.parse(name) for name in details[0]])
            case _:
                super().move(
                    [
                        (TileId.parse(name), _parse_blob(old), _parse_blob(new))
                        for name, old, new in details[0]
                    ]
                )


def _parse_blob(data: dict[str, Any]) -> BlobRef:
    return BlobRef(**(data | {"location": tuple(data["location"])}))
