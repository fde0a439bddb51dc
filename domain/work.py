"""What a run is to do: typed work, and the payload in which the queue keeps it.

A payload has a version. A worker that meets one it does not know, or that somebody has changed,
refuses it by the field that is wrong; such a run is given up, and never half understood.
"""

from typing import ClassVar, TypeAlias, assert_never

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import IncompleteWorkError
from tileferry.domain.json import JsonObject
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.partition import KEY_FIELDS, parse_partition_key
from tileferry.domain.runs import RunId, RunKind, Verdict, VerdictOutcome
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadOutcome,
    UploadBatchReport,
    UploadOutcome,
)
from tileferry.domain.tiles.area import AREA_FIELDS, Area, area_to_json, parse_area
from tileferry.domain.validation import instance, name

WORK_VERSION = 1
_NEWER = "let a worker of the release that submitted it have it"


@frozen(kw_only=True)
class AcquirePartition:
    """Extract one partition's area, seal it, and have it judged."""

    kind: ClassVar[RunKind] = RunKind.ACQUIRE_PARTITION
    key: PartitionKey = field(validator=instance(PartitionKey))
    area: Area = field(validator=instance(Area))

    @property
    def source(self) -> str:
        """The queue's gate: the source that is asked."""
        return self.key.source

    @property
    def dedupe_key(self) -> str:
        """The partition alone: two runs of it would compete, whatever the areas they name."""
        return f"{self.kind.value}/{self.key}"

    def to_payload(self) -> dict[str, JsonValue]:
        """Return the work in JSON's terms."""
        return {
            "version": WORK_VERSION,
            "source": self.key.source,
            "customer_id": self.key.customer_id,
            "query_name": self.key.query_name,
            "logical_date": self.key.logical_date.isoformat(),
            **area_to_json(self.area),
        }


@frozen(kw_only=True)
class DownloadArea:
    """Download an area for a flight into the cache."""

    kind: ClassVar[RunKind] = RunKind.DOWNLOAD_AREA
    source: str = field(validator=name)
    """The queue's gate: the provider's source."""
    flight_id: str = field(validator=name)
    area: Area = field(validator=instance(Area))

    @property
    def dedupe_key(self) -> str:
        """The whole request: another area of the same flight is other work."""
        area = self.area
        zooms = ",".join(map(str, area.zoom_levels))
        return (
            f"{self.kind.value}/{self.source}/{self.flight_id}/{area.bbox}/{zooms}"
            f"/{area.sector_class.value}"
        )

    def to_payload(self) -> dict[str, JsonValue]:
        """Return the work in JSON's terms."""
        return {
            "version": WORK_VERSION,
            "source": self.source,
            "flight_id": self.flight_id,
            **area_to_json(self.area),
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

    def to_payload(self) -> dict[str, JsonValue]:
        """Return the work in JSON's terms."""
        return {"version": WORK_VERSION, "source": self.source, "flight_id": self.flight_id}


Work: TypeAlias = AcquirePartition | DownloadArea | UploadFlight


def parse_work(kind: RunKind, payload: JsonValue) -> Work:
    """Read what ``payload()`` of this kind of work wrote; anything else is refused by its field."""
    data = JsonObject.from_value(payload, "payload")
    data.check_version(WORK_VERSION, remedy=_NEWER)
    match kind:
        case RunKind.ACQUIRE_PARTITION:
            data.check_names((*KEY_FIELDS, *AREA_FIELDS, "version"))
            return AcquirePartition(key=parse_partition_key(data), area=parse_area(data))
        case RunKind.DOWNLOAD_AREA:
            data.check_names((*_FLIGHT_FIELDS, *AREA_FIELDS, "version"))
            area = parse_area(data)
            with data.locate_errors():
                return DownloadArea(
                    source=data.get("source", str),
                    flight_id=data.get("flight_id", str),
                    area=area,
                )
        case RunKind.UPLOAD_FLIGHT:
            data.check_names((*_FLIGHT_FIELDS, "version"))
            with data.locate_errors():
                return UploadFlight(
                    source=data.get("source", str), flight_id=data.get("flight_id", str)
                )
        case _:
            assert_never(kind)


_FLIGHT_FIELDS = ("source", "flight_id")


_COMPLETE_OUTCOMES = (DownloadOutcome.SUCCESS, DownloadOutcome.IDEMPOTENT_NO_OP)


def judge_download(run_id: RunId, report: DownloadBatchReport) -> Verdict:
    """Pass a complete download, remark on what the gates did to it, and refuse to end any other."""
    if report.outcome not in _COMPLETE_OUTCOMES:
        raise IncompleteWorkError(
            what=f"the download for flight {report.flight_id}",
            problem=f"of {report.tiles_requested} tiles {report.tiles_failed} failed and "
            f"{report.tiles_missing} were missing",
        )
    remarks = {
        "downgraded: older than the sector's freshness limit": report.tiles_downgraded,
        "refused for their resolution": report.tiles_rejected_resolution,
        "refused as too old": report.tiles_rejected_freshness,
    }
    return _build_verdict(
        run_id, [f"{count} tiles {why}" for why, count in remarks.items() if count]
    )


def judge_upload(run_id: RunId, report: UploadBatchReport) -> Verdict:
    """Pass a complete upload, remark on tiles that need a human, and refuse to end any other."""
    waiting = report.next_retry_at_s is not None
    if report.outcome is UploadOutcome.FAILURE or waiting:
        raise IncompleteWorkError(
            what=f"the upload of flight {report.flight_id}",
            problem=f"{report.tiles_rejected} tiles were rejected and may still be tried",
        )
    remarks = {
        "are given up": report.tiles_given_up,
        "wait, and cannot be read from the cache: ingest them again": report.tiles_unreadable,
    }
    return _build_verdict(
        run_id, [f"{count} tiles {why}" for why, count in remarks.items() if count]
    )


def _build_verdict(run_id: RunId, reasons: list[str]) -> Verdict:
    outcome = VerdictOutcome.NEEDS_REVIEW if reasons else VerdictOutcome.PASSED
    return Verdict(run_id=run_id, outcome=outcome, reasons=reasons)
