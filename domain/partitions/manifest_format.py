"""The file format of manifests. Each line is one JSON object; errors name the invalid field.

====== ========================================================================== first  the
partition and run, the area, the downloader's counts, the sealing time tile   its id, location,
digest, resolution, date and freshness last   the number of tiles and bytes, and the sha256 of all
lines before it ====== ==========================================================================
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NoReturn

from attrs import asdict, define, field, fields, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.partitions.manifest import ManifestEntry, PartitionHeader, SealedPartition
from tileferry.domain.partitions.partition import KEY_FIELDS, parse_partition_key
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import BlobRef, DownloadTally, FreshnessLabel, TileId
from tileferry.domain.tiles.area import (
    AREA_FIELDS,
    OPTIONAL_AREA_FIELDS,
    area_to_json,
    parse_area,
)
from tileferry.domain.tiles.limits import SHAPE_CHARS_MAX
from tileferry.domain.validation import integer, sha256_hex

VERSION = 1
LINE_BYTES_MAX = 4_096
"""Including the line break."""
HEADER_BYTES_MAX = LINE_BYTES_MAX + SHAPE_CHARS_MAX
"""The first line describes the area."""

_NEWER = "use the release that wrote it"
_HEADER = ("version", "partition", "run_id", "area", "tiles_listed", "tally", "sealed_at")
_IMAGERY_DATE = "imagery_date"
"""Left out for the provider's current imagery, and by older releases."""
_TALLY = tuple(item.name for item in fields(DownloadTally))
_ENTRY = (
    *("tile", "segment", "offset", "length", "sha256"),
    *("resolution_m_per_px", "produced_at", "freshness"),
)
_END = ("tiles", "size_bytes", "sha256")
_LABELS = {label.value.encode(): label for label in FreshnessLabel}
_ENTRY_PATTERN = re.compile(
    rb'\{"tile":"([a-z0-9./_-]{1,100})","segment":([1-9][0-9]{0,9}),'
    rb'"offset":(0|[1-9][0-9]{0,19}),'
    rb'"length":(0|[1-9][0-9]{0,8}),"sha256":"([0-9a-f]{64})","resolution_m_per_px":([0-9.e+-]{1,25}),'
    rb'"produced_at":"([0-9T:.-]{19,26}\+00:00)","freshness":"([a-z]{1,20})"\}\n'
)
"""The form in which tile lines are written. Matching lines take the fast path; others are parsed.
"""


@frozen(kw_only=True)
class ManifestEnd:
    """The last line: the totals of all lines before it."""

    tiles: int = field(validator=integer(0))
    size_bytes: int = field(validator=integer(0))
    sha256: str = field(validator=sha256_hex)


def format_header(header: PartitionHeader) -> bytes:
    key, requested = header.key, header.imagery_date
    return _format_line(
        {
            "version": VERSION,
            "partition": {**asdict(key), "logical_date": key.logical_date.isoformat()},
            "run_id": header.run_id,
            "area": area_to_json(header.area),
            "tiles_listed": header.tiles_listed,
            "tally": asdict(header.tally),
            "sealed_at": header.sealed_at.isoformat(),
            **({} if requested is None else {_IMAGERY_DATE: requested.isoformat()}),
        }
    )


def format_entry(entry: ManifestEntry) -> bytes:
    blob = entry.blob
    segment, offset = blob.location
    # Formatted by hand for speed: there may be millions. No value contains a character that JSON
    # escapes.
    return (
        f'{{"tile":"{entry.tile_id}","segment":{segment},"offset":{offset},'
        f'"length":{blob.length},"sha256":"{blob.sha256}",'
        f'"resolution_m_per_px":{entry.resolution_m_per_px!r},'
        f'"produced_at":"{entry.produced_at.isoformat()}",'
        f'"freshness":"{entry.freshness.value}"}}\n'
    ).encode("ascii")


def format_end(end: ManifestEnd) -> bytes:
    return _format_line({"end": asdict(end)})


def is_end_line(line: bytes) -> bool:
    """Return whether a line looks like the last line of a manifest."""
    return line.startswith(b'{"end":')


def parse_header(line: bytes, path: str) -> PartitionHeader:
    """Parse the first line. Errors use ``path`` as its name."""
    content = parse_json(line, field=path, bytes_max=HEADER_BYTES_MAX)
    data = JsonObject.from_value(content, path)
    data.check_version(VERSION, remedy=_NEWER)
    data.check_names(_HEADER, optional=(_IMAGERY_DATE,))
    key = parse_partition_key(_get_object(data, "partition", KEY_FIELDS))
    area = parse_area(_get_object(data, "area", AREA_FIELDS, optional=OPTIONAL_AREA_FIELDS))
    tally = _parse_tally(_get_object(data, "tally", _TALLY))
    with data.locate_errors():
        return PartitionHeader(
            key=key,
            run_id=RunId(data.get("run_id", str)),
            area=area,
            tiles_listed=data.get("tiles_listed", int),
            tally=tally,
            sealed_at=data.get_datetime("sealed_at"),
            imagery_date=data.get_date(_IMAGERY_DATE) if _IMAGERY_DATE in data.fields else None,
        )


def _parse_tally(data: JsonObject) -> DownloadTally:
    with data.locate_errors():
        return DownloadTally(**{name: data.get(name, int) for name in _TALLY})


def parse_entry(line: bytes, path: str) -> ManifestEntry:
    """Parse the line of a tile."""
    written = _ENTRY_PATTERN.fullmatch(line)
    if written is None:
        return _parse_entry_by_field(line, path)
    tile, segment, offset, length, digest, resolution, produced_at, freshness = written.groups()
    try:
        return ManifestEntry(
            tile_id=TileId.parse(tile.decode()),
            blob=BlobRef(
                location=(int(segment), int(offset)),
                length=int(length),
                sha256=digest.decode(),
            ),
            resolution_m_per_px=float(resolution),
            produced_at=datetime.fromisoformat(produced_at.decode()),
            freshness=_LABELS[freshness],
        )
    except (LookupError, ValueError):
        return _parse_entry_by_field(line, path)


def _parse_entry_by_field(line: bytes, path: str) -> ManifestEntry:
    """Parse a line that does not match the fast pattern, so that the error names the field."""
    data = JsonObject.from_value(_parse_line(line, path), path)
    data.check_names(_ENTRY)
    freshness = data.get_enum("freshness", FreshnessLabel)
    with data.locate_errors("tile"):
        tile_id = TileId.parse(data.get("tile", str))
    with data.locate_errors():
        return ManifestEntry(
            tile_id=tile_id,
            blob=BlobRef(
                location=(_get_integer(data, "segment", 1), _get_integer(data, "offset", 0)),
                length=data.get("length", int),
                sha256=data.get("sha256", str),
            ),
            resolution_m_per_px=data.fields["resolution_m_per_px"],
            produced_at=data.get_datetime("produced_at"),
            freshness=freshness,
        )


def _get_integer(data: JsonObject, name: str, at_least: int) -> int:
    value = data.get(name, int)
    if value < at_least:
        raise data.build_error(name, f"must be at least {at_least}")
    return value


def parse_end(line: bytes, path: str) -> ManifestEnd:
    """Parse the last line."""
    outer = JsonObject.from_value(_parse_line(line, path), path)
    outer.check_names(("end",))
    data = _get_object(outer, "end", _END)
    with data.locate_errors():
        return ManifestEnd(
            tiles=data.get("tiles", int),
            size_bytes=data.get("size_bytes", int),
            sha256=data.get("sha256", str),
        )


def _get_object(
    data: JsonObject, name: str, names: Collection[str], *, optional: Collection[str] = ()
) -> JsonObject:
    found = JsonObject.from_value(data.fields[name], f"{data.path}.{name}")
    found.check_names(names, optional=optional)
    return found


def _parse_line(line: bytes, path: str) -> JsonValue:
    return parse_json(line, field=path, bytes_max=LINE_BYTES_MAX)


def _format_line(data: Mapping[str, JsonValue]) -> bytes:
    # Plain JSON is enough: the digest covers the bytes as written, and canonical JSON is slower.
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def format_manifest(header: PartitionHeader, entries: Iterable[ManifestEntry]) -> Iterator[bytes]:
    """Yield the lines of a manifest, including line breaks."""
    sums = _RunningTotals()
    yield sums.add_line(format_header(header))
    for entry in entries:
        yield sums.add_line(format_entry(entry), entry)
    yield format_end(sums.end)


@frozen
class ManifestReader:
    """Reads a manifest from chunks in a single pass."""

    header: PartitionHeader
    _lines: Iterator[bytes]
    _sums: "_RunningTotals"
    _name: str

    @classmethod
    def from_chunks(cls, chunks: Iterable[bytes], *, name: str = "manifest") -> "ManifestReader":
        """Read the header. Errors use ``name`` for the manifest."""
        lines, sums = _split_lines(chunks, name), _RunningTotals()
        first = next(lines, b"")
        header = parse_header(sums.add_line(first), f"{name}.header")
        return cls(header, lines, sums, name)

    def entries(self) -> Iterator[ManifestEntry]:
        """Yield the tiles. When the iterator is exhausted, the whole manifest has been verified."""
        for line in self._lines:
            if is_end_line(line):
                self._check_end(parse_end(line, self._name))
                return
            entry = parse_entry(line, f"{self._name}.tiles[{self._sums.tiles}]")
            self._sums.add_line(line, entry)
            yield entry
        _refuse(f"{self._name}.end", "is missing: the manifest is incomplete")

    def _check_end(self, said: ManifestEnd) -> None:
        found = self._sums.end
        for name in ("tiles", "size_bytes", "sha256"):
            if getattr(said, name) != getattr(found, name):
                _refuse(
                    f"{self._name}.end.{name}",
                    f"does not match the lines before it, {getattr(found, name)}",
                    getattr(said, name),
                )
        if next(self._lines, None) is not None:
            _refuse(f"{self._name}.end", "is not the last line")


def parse_sealed_partition(head: bytes, tail: bytes, *, name: str = "manifest") -> SealedPartition:
    """Build the sealed partition from the first and the last line, with what is between or not.

    This is cheap because it trusts the manifest; only ``ManifestReader`` verifies the digest.
    """
    first, ended, _ = head.partition(b"\n")
    header = parse_header(first + ended, f"{name}.header")
    if not tail.endswith(b"\n"):
        _refuse(f"{name}.end", "has no line break: the manifest is incomplete")
    end = parse_end(tail[:-1].rpartition(b"\n")[2], name)
    return SealedPartition(
        key=header.key,
        run_id=header.run_id,
        tiles=end.tiles,
        size_bytes=end.size_bytes,
        manifest_sha256=end.sha256,
        sealed_at=header.sealed_at,
    )


@define
class _RunningTotals:
    """The totals of the lines so far."""

    tiles: int = 0
    size_bytes: int = 0
    _digest: Any = field(factory=sha256, init=False)  # hashlib has no public class for it

    def add_line(self, line: bytes, entry: ManifestEntry | None = None) -> bytes:
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


def _split_lines(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield complete lines, including line breaks."""
    pending, bytes_max = b"", HEADER_BYTES_MAX
    for chunk in chunks:
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
            bytes_max = LINE_BYTES_MAX
        if len(pending) > bytes_max:
            _refuse(name, f"has a line longer than {bytes_max} bytes")
    if pending:
        _refuse(name, "ends within a line: the manifest is incomplete")


def _refuse(field: str, problem: str, value: object = None) -> NoReturn:
    raise InvalidValueError(
        field=field,
        value=value,
        problem=problem,
        remedy="raw partitions are never repaired; start a new run of the partition",
    )
