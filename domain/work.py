"""The work of a run: typed values, their queue payloads, and the verdict on the result.

Payloads are versioned. A worker rejects a payload with an unknown version or an invalid field, and
the run is given up.
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
from tileferry.domain.tiles.area import (
    AREA_FIELDS,
    OPTIONAL_AREA_FIELDS,
    Area,
    area_to_json,
    parse_area,
)
from tileferry.domain.validation import instance, name

WORK_VERSION = 1
_NEWER = "use a worker of the release that submitted it"


@frozen(kw_only=True)
class AcquirePartition:
    """Acquire one partition: download its area, seal it and have it judged."""

    kind: ClassVar[RunKind] = RunKind.ACQUIRE_PARTITION
    key: PartitionKey = field(validator=instance(PartitionKey))
    area: Area = field(validator=instance(Area))

    @property
    def source(self) -> str:
        """The source whose gate applies."""
        return self.key.source

    @property
    def dedupe_key(self) -> str:
        """The partition only: two runs of it would compete, even with different areas."""
        return f"{self.kind.value}/{self.key}"

    def to_payload(self) -> dict[str, JsonValue]:
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
    """The source whose gate applies."""
    flight_id: str = field(validator=name)
    area: Area = field(validator=instance(Area))

    @property
    def dedupe_key(self) -> str:
        """The whole request: another area of the same flight is different work."""
        area = self.area
        zooms = ",".join(map(str, area.zoom_levels))
        return (
            f"{self.kind.value}/{self.source}/{self.flight_id}/{area.place_key}/{zooms}"
            f"/{area.sector_class.value}"
        )

    def to_payload(self) -> dict[str, JsonValue]:
        return {
            "version": WORK_VERSION,
            "source": self.source,
            "flight_id": self.flight_id,
            **area_to_json(self.area),
        }


@frozen(kw_only=True)
class UploadFlight:
    """Upload the pending captures of a flight."""

    kind: ClassVar[RunKind] = RunKind.UPLOAD_FLIGHT
    source: str = field(validator=name)
    """The source whose gate applies."""
    flight_id: str = field(validator=name)

    @property
    def dedupe_key(self) -> str:
        """The flight: an upload sends all its pending tiles."""
        return f"{self.kind.value}/{self.source}/{self.flight_id}"

    def to_payload(self) -> dict[str, JsonValue]:
        return {"version": WORK_VERSION, "source": self.source, "flight_id": self.flight_id}


Work: TypeAlias = AcquirePartition | DownloadArea | UploadFlight


def parse_work(kind: RunKind, payload: JsonValue) -> Work:
    """Parse the output of ``to_payload`` for this kind of work. Errors name the invalid field."""
    data = JsonObject.from_value(payload, "payload")
    data.check_version(WORK_VERSION, remedy=_NEWER)
    match kind:
        case RunKind.ACQUIRE_PARTITION:
            data.check_names((*KEY_FIELDS, *AREA_FIELDS, "version"), optional=OPTIONAL_AREA_FIELDS)
            return AcquirePartition(key=parse_partition_key(data), area=parse_area(data))
        case RunKind.DOWNLOAD_AREA:
            data.check_names(
                (*_FLIGHT_FIELDS, *AREA_FIELDS, "version"), optional=OPTIONAL_AREA_FIELDS
            )
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
    """Return the verdict on a complete download; raise if it is incomplete.

    Tiles that a gate rejected or downgraded, or that are absent, make it ``needs_review``.
    """
    if report.outcome not in _COMPLETE_OUTCOMES:
        raise IncompleteWorkError(
            what=f"the download for flight {report.flight_id}",
            problem=f"of {report.tiles_requested} tiles {report.tiles_failed} failed",
        )
    remarks = {
        "downgraded for age": report.tiles_downgraded,
        "rejected for their resolution": report.tiles_rejected_resolution,
        "rejected as too old": report.tiles_rejected_freshness,
        "absent at the provider": report.tiles_missing,
    }
    return _build_verdict(
        run_id, [f"{count} tiles {why}" for why, count in remarks.items() if count]
    )


def judge_upload(run_id: RunId, report: UploadBatchReport) -> Verdict:
    """Return the verdict on a complete upload; raise if it is incomplete.

    Tiles that need an operator make it ``needs_review``.
    """
    waiting = report.next_retry_at_s is not None
    if report.outcome is UploadOutcome.FAILURE or waiting:
        raise IncompleteWorkError(
            what=f"the upload of flight {report.flight_id}",
            problem=f"{report.tiles_rejected} tiles were rejected and can be retried",
        )
    remarks = {
        "are given up": max(report.tiles_given_up, report.undelivered_giveups),
        "are pending but cannot be read from the cache; ingest them again": report.tiles_unreadable,
    }
    return _build_verdict(
        run_id, [f"{count} tiles {why}" for why, count in remarks.items() if count]
    )


def _build_verdict(run_id: RunId, reasons: list[str]) -> Verdict:
    outcome = VerdictOutcome.NEEDS_REVIEW if reasons else VerdictOutcome.PASSED
    return Verdict(run_id=run_id, outcome=outcome, reasons=reasons)
