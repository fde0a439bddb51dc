"""A manifest from its first byte to its last, a line at a time: a million tiles are never held.

What is torn, edited, too long or behind the end is refused. Only who reads to the end may believe
what was read.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NoReturn

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.manifest import ManifestEntry, PartitionHeader, SealedPartition
from tileferry.domain.partitions.manifest_lines import (
    LINE_BYTES_MAX,
    ManifestEnd,
    end_line,
    end_of,
    entry_line,
    entry_of,
    header_line,
    header_of,
    is_end,
)


def manifest_lines(header: PartitionHeader, entries: Iterable[ManifestEntry]) -> Iterator[bytes]:
    """Yield the lines of a manifest, with their line breaks."""
    sums = _Sums()
    yield sums.noted(header_line(header))
    for entry in entries:
        yield sums.noted(entry_line(entry), entry)
    yield end_line(sums.end)


@frozen
class ManifestReader:
    """Reads a manifest from its chunks, which go through it once."""

    header: PartitionHeader
    _lines: Iterator[bytes]
    _sums: "_Sums"
    _name: str

    @classmethod
    def of(cls, chunks: Iterable[bytes], *, name: str = "manifest") -> "ManifestReader":
        """Begin to read; ``name`` is how errors call the manifest."""
        lines, sums = _lines_of(chunks, name), _Sums()
        first = next(lines, b"")
        header = header_of(sums.noted(first), f"{name}.header")
        return cls(header, lines, sums, name)

    def entries(self) -> Iterator[ManifestEntry]:
        """Yield the tiles; when this has come to its end, all of it is as it was written."""
        for line in self._lines:
            if is_end(line):
                self._check_end(end_of(line, self._name))
                return
            entry = entry_of(line, f"{self._name}.tiles[{self._sums.tiles}]")
            self._sums.noted(line, entry)
            yield entry
        _refuse(f"{self._name}.end", "is missing: the manifest is torn")

    def _check_end(self, said: ManifestEnd) -> None:
        found = self._sums.end
        for name in ("tiles", "size_bytes", "sha256"):
            if getattr(said, name) != getattr(found, name):
                _refuse(
                    f"{self._name}.end.{name}",
                    f"is not what the lines before it come to, {getattr(found, name)}",
                    getattr(said, name),
                )
        if next(self._lines, None) is not None:
            _refuse(f"{self._name}.end", "is not the last line")


def sealed_partition(head: bytes, tail: bytes, *, name: str = "manifest") -> SealedPartition:
    """Return what both ends of a manifest say, up to ``LINE_BYTES_MAX`` bytes of each.

    That is cheap, and it believes the manifest: who reads all of it finds out.
    """
    first, ended, _ = head.partition(b"\n")
    header = header_of(first + ended, f"{name}.header")
    if not tail.endswith(b"\n"):
        _refuse(f"{name}.end", "has no line break: the manifest is torn")
    end = end_of(tail[:-1].rpartition(b"\n")[2], name)
    return SealedPartition(
        key=header.key,
        run_id=header.run_id,
        tiles=end.tiles,
        size_bytes=end.size_bytes,
        manifest_sha256=end.sha256,
        sealed_at=header.sealed_at,
    )


@define
class _Sums:
    """What the lines so far come to."""

    tiles: int = 0
    size_bytes: int = 0
    _digest: Any = field(factory=sha256, init=False)  # hashlib names no class for it

    def noted(self, line: bytes, entry: ManifestEntry | None = None) -> bytes:
        self._digest.update(line)
        if entry is not None:
            self.tiles += 1
            self.size_bytes += entry.blob.length
        return line

    @property
    def end(self) -> ManifestEnd:
        return ManifestEnd(
            tiles=self.tiles, size_bytes=self.size_bytes, sha256=self._digest.hexdigest()
        )


def _lines_of(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield whole lines, with their line breaks."""
    pending = b""
    for chunk in chunks:
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(pending) > LINE_BYTES_MAX:
            _refuse(name, f"has a line of over {LINE_BYTES_MAX} bytes")
    if pending:
        _refuse(name, "ends within a line: it is torn")


def _refuse(field: str, problem: str, value: object = None) -> NoReturn:
    raise InvalidValueError(
        field=field,
        value=value,
        problem=problem,
        remedy="a raw partition is never mended: start a new run of its partition",
    )
