"""What a run is to do: typed work, and the payload in which the queue keeps it.

A payload has a version. A worker that meets one it does not know, or that somebody has changed,
refuses it by the field that is wrong; such a run is given up, and never half understood.
"""

from typing import ClassVar, TypeAlias, assert_never

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.checks import instance, name
from tileferry.domain.json_object import JsonObject
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.partition import KEY_FIELDS, key_from
from tileferry.domain.runs import RunKind
from tileferry.domain.tiles.area import AREA_FIELDS, Area, area_from, area_json

WORK_VERSION = 1
_NEWER = "let a worker of the release that submitted it have it"


@frozen(kw_only=True)
class AcquirePartition(Area):
    """Extract one partition's area, seal it, and have it judged."""

    kind: ClassVar[RunKind] = RunKind.ACQUIRE_PARTITION
    key: PartitionKey = field(validator=instance(PartitionKey))

    @classmethod
    def of(cls, key: PartitionKey, area: Area) -> "AcquirePartition":
        """Return the work for a partition of an area that is known already."""
        return cls(
            key=key,
            bbox=area.bbox,
            zoom_levels=area.zoom_levels,
            sector_class=area.sector_class,
        )

    @property
    def source(self) -> str:
        """The queue's gate: the source that is asked."""
        return self.key.source

    @property
    def dedupe_key(self) -> str:
        """The partition alone: two runs of it would compete, whatever the areas they name."""
        return f"{self.kind.value}/{self.key}"

    def payload(self) -> dict[str, JsonValue]:
        """Return the work in JSON's terms."""
        return {
            "version": WORK_VERSION,
            "source": self.key.source,
            "customer_id": self.key.customer_id,
            "query_name": self.key.query_name,
            "logical_date": self.key.logical_date.isoformat(),
            **area_json(self),
        }


@frozen(kw_only=True)
class DownloadArea(Area):
    """Download an area for a flight into the cache."""

    kind: ClassVar[RunKind] = RunKind.DOWNLOAD_AREA
    source: str = field(validator=name)
    """The queue's gate: the provider's source."""
    flight_id: str = field(validator=name)

    @property
    def dedupe_key(self) -> str:
        """The whole request: of another area of the same flight it is other work."""
        zooms = ",".join(map(str, self.zoom_levels))
        return (
            f"{self.kind.value}/{self.source}/{self.flight_id}/{self.bbox}/{zooms}"
            f"/{self.sector_class.value}"
        )

    def payload(self) -> dict[str, JsonValue]:
        """Return the work in JSON's terms."""
        return {
            "version": WORK_VERSION,
            "source": self.source,
            "flight_id": self.flight_id,
            **area_json(self),
        }


@frozen(kw_only=True)
class UploadFlight:
    """Upload what a flight captured and has not delivered yet."""

    kind: ClassVar[RunKind] = RunKind.UPLOAD_FLIGHT
    source: str = field(validator=name)
    """The queue's gate: the provider's source."""
    flight_id: str = field(validator=name)

    @property
    def dedupe_key(self) -> str:
        """The flight: an upload takes all that waits."""
        return f"{self.kind.value}/{self.source}/{self.flight_id}"

    def payload(self) -> dict[str, JsonValue]:
        """Return the work in JSON's terms."""
        return {"version": WORK_VERSION, "source": self.source, "flight_id": self.flight_id}


Work: TypeAlias = AcquirePartition | DownloadArea | UploadFlight


def work_from(kind: RunKind, payload: JsonValue) -> Work:
    """Read what ``payload()`` of this kind of work wrote; anything else is refused by its field."""
    data = JsonObject.of(payload, "payload")
    data.check_version(WORK_VERSION, remedy=_NEWER)
    match kind:
        case RunKind.ACQUIRE_PARTITION:
            data.check_names((*KEY_FIELDS, *AREA_FIELDS, "version"))
            return AcquirePartition.of(key_from(data), area_from(data))
        case RunKind.DOWNLOAD_AREA:
            data.check_names((*_FLIGHT_FIELDS, *AREA_FIELDS, "version"))
            area = area_from(data)
            with data.naming():
                return DownloadArea(
                    source=data.get("source", str),
                    flight_id=data.get("flight_id", str),
                    bbox=area.bbox,
                    zoom_levels=area.zoom_levels,
                    sector_class=area.sector_class,
                )
        case RunKind.UPLOAD_FLIGHT:
            data.check_names((*_FLIGHT_FIELDS, "version"))
            with data.naming():
                return UploadFlight(
                    source=data.get("source", str), flight_id=data.get("flight_id", str)
                )
        case _:
            assert_never(kind)


_FLIGHT_FIELDS = ("source", "flight_id")
