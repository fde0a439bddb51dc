"""Single lines of a manifest: each is one JSON object, read whole or refused by its wrong field.

====== ==========================================================================
first  whose it is, its area, what the downloader counted, when it was sealed
tile   its id, where its bytes are, their digest, resolution, date and freshness
last   how many tiles and bytes that is, and the sha256 of every line before it
====== ==========================================================================
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import asdict, field, fields, frozen

from tileferry.domain.checks import integer, sha256_hex
from tileferry.domain.json_fields import JsonFields
from tileferry.domain.json_input import parse_json
from tileferry.domain.partitions.manifest import ManifestEntry, PartitionArea, PartitionHeader
from tileferry.domain.partitions.partition import PartitionKey
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    DownloadTally,
    FreshnessLabel,
    SectorClass,
    TileId,
)

VERSION = 1
LINE_BYTES_MAX = 4_096
"""With its line break. Our longest line, the first, stays well below."""

_HEADER = ("manifest", "partition", "run_id", "area", "tiles_listed", "tally", "sealed_at")
_KEY = ("source", "customer_id", "query_name", "logical_date")
_AREA = ("west", "south", "east", "north", "zoom_levels", "sector_class")
_EDGES = _AREA[:4]
_TALLY = tuple(item.name for item in fields(DownloadTally))
_BLOB = ("segment", "offset", "length", "sha256")
_ENTRY = ("tile", *_BLOB, "resolution_m_per_px", "produced_at", "freshness")
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
    key, area = header.key, header.area
    return _line(
        {
            "manifest": VERSION,
            "partition": {**asdict(key), "logical_date": key.logical_date.isoformat()},
            "run_id": header.run_id,
            "area": {
                **asdict(area.bbox),
                "zoom_levels": area.zoom_levels,
                "sector_class": area.sector_class.value,
            },
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
    data = JsonFields.of(_parsed(line, path), path, _HEADER)
    if type(data["manifest"]) is not int or data["manifest"] != VERSION:  # True equals 1
        raise data.refused("manifest", f"is a format that is not read here: {VERSION} is")
    tally = data.below("tally", _TALLY)
    key = _key_of(data.below("partition", _KEY))
    area = _area_of(data.below("area", _AREA))
    return data.made(
        lambda: PartitionHeader(
            key=key,
            run_id=data["run_id"],
            area=area,
            tiles_listed=data["tiles_listed"],
            tally=tally.made(lambda: DownloadTally(**tally.data)),
            sealed_at=data.moment("sealed_at"),
        )
    )


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
    data = JsonFields.of(_parsed(line, path), path, _ENTRY)
    tile_id = data.made(lambda: TileId.parse(data["tile"]), "tile")
    return data.made(
        lambda: ManifestEntry(
            tile_id=tile_id,
            blob=BlobRef(**{name: data[name] for name in _BLOB}),
            resolution_m_per_px=data["resolution_m_per_px"],
            produced_at=data.moment("produced_at"),
            freshness=data.member("freshness", FreshnessLabel),
        )
    )


def end_of(line: bytes, path: str) -> ManifestEnd:
    """Read the last line."""
    data = JsonFields.of(_parsed(line, path), path, ("end",)).below("end", _END)
    return data.made(lambda: ManifestEnd(**data.data))


def _key_of(data: JsonFields) -> PartitionKey:
    return data.made(
        lambda: PartitionKey(
            source=data["source"],
            customer_id=data["customer_id"],
            query_name=data["query_name"],
            logical_date=data.day("logical_date"),
        )
    )


def _area_of(data: JsonFields) -> PartitionArea:
    return data.made(
        lambda: PartitionArea(
            bbox=BBox(**{edge: data[edge] for edge in _EDGES}),
            zoom_levels=data["zoom_levels"],
            sector_class=data.member("sector_class", SectorClass),
        )
    )


def _parsed(line: bytes, path: str) -> object:
    return parse_json(line, field=path, bytes_max=LINE_BYTES_MAX)


def _line(data: Mapping[str, Any]) -> bytes:
    # Plain JSON: its digest is of the bytes as they are, and the canonical form costs each field.
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
