"""Read-only access to sealed raw partitions."""

from collections.abc import Iterator

from attrs import frozen

from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.segments.format import FILE_HEADER, segment_name
from tileferry.adapters.filesystem.segments.reader import SegmentReader
from tileferry.application.ports.raw_partitions import NEVER_REPAIRED, format_manifest_name
from tileferry.domain.errors import DamagedTileError, InvalidStateError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import (
    ManifestEntry,
    PartitionDamage,
    PartitionHeader,
    SealedPartition,
)
from tileferry.domain.partitions.manifest_format import (
    HEADER_BYTES_MAX,
    LINE_BYTES_MAX,
    ManifestReader,
    parse_sealed_partition,
)
from tileferry.domain.runs import RunId

MANIFEST = "manifest.jsonl"
STORE, SEGMENTS = ".c6", "segments"
_CHUNK_BYTES = 64 * 1024
_OPEN_FILES_MAX = 16


def read_sealed_partition(
    directory: Directory, key: PartitionKey, run_id: RunId
) -> SealedPartition:
    """Return the sealed partition described by the manifest; reject the manifest of another run."""
    name = format_manifest_name(run_id)
    with open_manifest(directory, run_id) as file:
        head = file.pread(LINE_BYTES_MAX, 0)
        if b"\n" not in head:  # the area is a shape
            head = file.pread(HEADER_BYTES_MAX, 0)
        tail = file.pread(LINE_BYTES_MAX, max(0, file.size() - LINE_BYTES_MAX))
    sealed = parse_sealed_partition(head, tail, name=name)
    if (sealed.key, sealed.run_id) != (key, run_id):
        raise InvalidStateError(
            subject=name,
            problem=f"belongs to {sealed.key}/{sealed.run_id}, not to {key}",
            remedy="the directory was moved; move it back",
        )
    return sealed


def open_manifest(directory: Directory, run_id: RunId) -> OpenFile:
    """Open the manifest; fail if the run's directory has none."""
    file = directory.find_file(MANIFEST)
    if file is None:
        raise InvalidStateError(
            subject=format_manifest_name(run_id),
            problem=f"is missing in {directory.path}",
            remedy=NEVER_REPAIRED,
        )
    return file


@frozen(kw_only=True)
class FilePartitionReader:
    """One sealed partition, open for reading."""

    sealed: SealedPartition
    header: PartitionHeader
    _manifest: OpenFile
    _segments: Directory
    _reader: SegmentReader

    @classmethod
    def from_open_files(
        cls, sealed: SealedPartition, manifest: OpenFile, segments: Directory
    ) -> "FilePartitionReader":
        """Return a reader for an open partition; the caller closes the files it passed in."""
        return cls(
            sealed=sealed,
            header=_open_manifest_reader(sealed, manifest).header,
            manifest=manifest,
            segments=segments,
            reader=SegmentReader(directory=segments, open_files_max=_OPEN_FILES_MAX),
        )

    def close(self) -> None:
        """Close the segments."""
        self._reader.close()

    def iter_entries(self) -> Iterator[ManifestEntry]:
        """Yield the tiles, then verify that the manifest has not changed since it was sealed."""
        return _open_manifest_reader(self.sealed, self._manifest).entries()

    def read_tile(self, entry: ManifestEntry) -> bytes:
        """Return the bytes of a tile, verified by sha256."""
        return self._reader.read_verified(entry.tile_id, entry.blob)

    def verify(self) -> Iterator[PartitionDamage]:
        """Check every record and file header that the manifest refers to, and yield the damage.

        Bytes between the records, left by a crash, are ignored.
        """
        checked: set[int] = set()
        for entry in self.iter_entries():
            segment = entry.blob.location[0]
            if segment not in checked:
                checked.add(segment)
                yield from self._check_header(segment)
            try:
                self.read_tile(entry)
            except DamagedTileError as error:
                yield PartitionDamage(subject=str(entry.tile_id), problem=error.problem)

    def _check_header(self, segment: int) -> Iterator[PartitionDamage]:
        file = self._segments.find_file(segment_name(segment))
        if file is None:
            return  # reported for each of its tiles
        with file:
            if file.pread(len(FILE_HEADER), 0) != FILE_HEADER:
                yield PartitionDamage(
                    subject=segment_name(segment), problem="its file header is damaged"
                )


def _open_manifest_reader(sealed: SealedPartition, manifest: OpenFile) -> ManifestReader:
    return ManifestReader.from_chunks(
        _read_chunks(manifest), name=format_manifest_name(sealed.run_id)
    )


def _read_chunks(file: OpenFile) -> Iterator[bytes]:
    offset = 0
    while chunk := file.pread(_CHUNK_BYTES, offset):
        offset += len(chunk)
        yield chunk
