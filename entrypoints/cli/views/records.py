"""Values of the books for scripts: every field by its name, times in UTC, keys as their text."""

from datetime import UTC, date, datetime
from enum import IntEnum
from typing import Any

from attrs import AttrsInstance, fields

from tileferry.domain.partitions import Partition, PartitionKey
from tileferry.domain.tiles import BBox


def record_json(record: AttrsInstance) -> dict[str, Any]:
    """Return the fields of a value."""
    return {item.name: _plain(getattr(record, item.name)) for item in fields(type(record))}


def partition_json(partition: Partition) -> dict[str, Any]:
    """Return a partition, with the parts of its key beside its text."""
    body = record_json(partition)
    return {"partition": body.pop("key"), **record_json(partition.key), **body}


def moment_json(moment: datetime | None) -> str | None:
    """Return a time, if there is one."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def bbox_json(box: BBox) -> list[float]:
    """Return an area's box."""
    return [box.west, box.south, box.east, box.north]


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return moment_json(value)
        case date():
            return value.isoformat()
        case PartitionKey():
            return str(value)
        case IntEnum():
            return value.name.lower()
        case _:
            return value
