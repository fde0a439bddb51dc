"""Single lines of a manifest: each is one JSON object, read whole or refused by its wrong field.

====== ==========================================================================
first  whose it is, its area, what the downloader counted, when it was sealed
tile   its id, where its bytes are, their digest, resolution, date and freshness
last   how many tiles and bytes that is, and the sha256 of every line before it
====== ==========================================================================
"""

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime

from attrs import asdict, field, fields, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.checks import integer, sha256_hex
from tileferry.domain.json_input import parse_json
from tileferry.domain.json_object import JsonObject
from tileferry.domain.partitions.manifest import ManifestEntry, PartitionHeader
from tileferry.domain.partitions.partition import KEY_FIELDS, key_from
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import BlobRef, DownloadTally, FreshnessLabel, TileId
from tileferry.domain.tiles.area import AREA_FIELDS, area_from, area_json

VERSION = 1
LINE_BYTES_MAX = 4_096
"""With its line break. Our longest line, the first, stays well below."""

_NEWER = "read it with the release that wrote it"
_HEADER = ("version", "partition", "run_id", "area", "tiles_listed", "tally", "sealed_at")
_TALLY = tuple(item.name for item in fields(DownloadTally))
_ENTRY = (
    *("tile", "segment", "offset", "length", "sha256"),
    *("resolution_m_per_px", "produced_at", "freshness"),
)
_END = ("tiles", "size_bytes", "sha256")
_LABELS = {label.value.encode(): label for label in FreshnessLabel}
_WRITTEN = re.compile(
    rb'\{"tile":"([a-z0-9./_-]{1,100})","segment":([1-9][0-9]{0,9}),'
    rb'"offset":(0|[1-9][0-9]{0,19}),'
    rb'"length":(0|[1-9][0-9]{0,8}),"sha256":"([0-9a-f]{64})","resolution_m_per_px":([0-9.e+-]{1,25}),'
    rb'"produced_at":"([0-9T:.-]{19,26}\+00:00)","freshness":"([a-z]{1,20})"\}\n'
)
"""The form in which we write a tile: what has it is read fast, and the rest by the field."""


@frozen(kw_only=True)
class ManifestEnd:
    """The last line: what all before it come to."""

    tiles: int = field(validator=integer(0))
    size_bytes: int = field(validator=integer(0))
    sha256: str = field(validator=sha256_hex)


def header_line(header: PartitionHeader) -> bytes:
    """Return the first line."""
    key = header.key
    return _line(
        {
            "version": VERSION,
            "partition": {**asdict(key), "logical_date": key.logical_date.isoformat()},
            "run_id": header.run_id,
            "area": area_json(header.area),
            "tiles_listed": header.tiles_listed,
            "tally": asdict(header.tally),
            "sealed_at": header.sealed_at.isoformat(),
        }
    )


def entry_line(entry: ManifestEntry) -> bytes:
    """Return the line of a tile."""
    blob = entry.blob
    # Written out, since there are millions: no value in it has a character that JSON escapes.
    return (
        f'{{"tile":"{entry.tile_id}","segment":{blob.segment},"offset":{blob.offset},'
        f'"length":{blob.length},"sha256":"{blob.sha256}",'
        f'"resolution_m_per_px":{entry.resolution_m_per_px!r},'
        f'"produced_at":"{entry.produced_at.isoformat()}",'
        f'"freshness":"{entry.freshness.value}"}}\n'
    ).encode("ascii")


def end_line(end: ManifestEnd) -> bytes:
    """Return the last line."""
    return _line({"end": asdict(end)})


def is_end(line: bytes) -> bool:
    """Tell whether a line means to be the last one."""
    return line.startswith(b'{"end":')


def header_of(line: bytes, path: str) -> PartitionHeader:
    """Read the first line; ``path`` is how errors name it."""
    data = JsonObject.of(_parsed(line, path), path)
    data.check_version(VERSION, remedy=_NEWER)
    data.check_names(_HEADER)
    key = key_from(_below(data, "partition", KEY_FIELDS))
    area = area_from(_below(data, "area", AREA_FIELDS))
    tally = _tally_from(_below(data, "tally", _TALLY))
    with data.naming():
        return PartitionHeader(
            key=key,
            run_id=RunId(data.get("run_id", str)),
            area=area,
            tiles_listed=data.get("tiles_listed", int),
            tally=tally,
            sealed_at=data.get_moment("sealed_at"),
        )


def _tally_from(data: JsonObject) -> DownloadTally:
    with data.naming():
        return DownloadTally(**{name: data.get(name, int) for name in _TALLY})


def entry_of(line: bytes, path: str) -> ManifestEntry:
    """Read the line of a tile."""
    written = _WRITTEN.fullmatch(line)
    if written is None:
        return _entry_by_field(line, path)
    tile, segment, offset, length, digest, resolution, produced_at, freshness = written.groups()
    try:
        return ManifestEntry(
            tile_id=TileId.parse(tile.decode()),
            blob=BlobRef(
                segment=int(segment),
                offset=int(offset),
                length=int(length),
                sha256=digest.decode(),
            ),
            resolution_m_per_px=float(resolution),
            produced_at=datetime.fromisoformat(produced_at.decode()),
            freshness=_LABELS[freshness],
        )
    except (LookupError, ValueError):
        return _entry_by_field(line, path)


def _entry_by_field(line: bytes, path: str) -> ManifestEntry:
    """Read a line that is not as we write it, to refuse it by its field."""
    data = JsonObject.of(_parsed(line, path), path)
    data.check_names(_ENTRY)
    freshness = data.get_member("freshness", FreshnessLabel)
    with data.naming("tile"):
        tile_id = TileId.parse(data.get("tile", str))
    with data.naming():
        return ManifestEntry(
            tile_id=tile_id,
            blob=BlobRef(
                segment=data.get("segment", int),
                offset=data.get("offset", int),
                length=data.get("length", int),
                sha256=data.get("sha256", str),
            ),
            resolution_m_per_px=data.fields["resolution_m_per_px"],
            produced_at=data.get_moment("produced_at"),
            freshness=freshness,
        )


def end_of(line: bytes, path: str) -> ManifestEnd:
    """Read the last line."""
    outer = JsonObject.of(_parsed(line, path), path)
    outer.check_names(("end",))
    data = _below(outer, "end", _END)
    with data.naming():
        return ManifestEnd(
            tiles=data.get("tiles", int),
            size_bytes=data.get("size_bytes", int),
            sha256=data.get("sha256", str),
        )


def _below(data: JsonObject, name: str, names: Collection[str]) -> JsonObject:
    found = JsonObject.of(data.fields[name], f"{data.path}.{name}")
    found.check_names(names)
    return found


def _parsed(line: bytes, path: str) -> JsonValue:
    return parse_json(line, field=path, bytes_max=LINE_BYTES_MAX)


def _line(data: Mapping[str, JsonValue]) -> bytes:
    # Plain JSON: its digest is of the bytes as they are, and the canonical form costs each field.
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
