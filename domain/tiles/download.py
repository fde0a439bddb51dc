"""Downloads: the request, a line of the provider's listing, the tile counts and the report."""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import PurePath
from typing import Any, overload

from attrs import Attribute, asdict, evolve, field, fields, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.gates import SectorClass
from tileferry.domain.tiles.limits import TILE_BYTES_MAX
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import (
    as_float,
    aware,
    check_fields,
    format_field_name,
    instance,
    integer,
    is_unicode,
    name,
    number,
    positive,
    sha256_hex,
)

REQUEST_HASH_DIGITS = 16


@frozen(kw_only=True, init=False)
class DownloadRequest:
    """An area to download for a flight. Pass ``area``, or its fields."""

    flight_id: str = field(validator=name)
    area: Area = field(validator=instance(Area))
    cache_root: PurePath = field(validator=instance(PurePath))

    @overload
    def __init__(self, *, flight_id: str, area: Area, cache_root: PurePath) -> None: ...
    @overload
    def __init__(
        self,
        *,
        flight_id: str,
        bbox: BBox,
        zoom_levels: Iterable[int],
        sector_class: SectorClass,
        cache_root: PurePath,
    ) -> None: ...
    def __init__(
        self, *, flight_id: str, cache_root: PurePath, area: Area | None = None, **parts: Any
    ) -> None:
        if area is None:
            area = Area(**parts)
        elif parts:
            area = evolve(area, **parts)
        self.__attrs_init__(flight_id=flight_id, area=area, cache_root=cache_root)

    @property
    def bbox(self) -> BBox:
        return self.area.bbox

    @property
    def zoom_levels(self) -> tuple[int, ...]:
        return self.area.zoom_levels

    @property
    def sector_class(self) -> SectorClass:
        return self.area.sector_class

    @property
    def coverage(self) -> TileCoverage:
        return self.area.coverage

    def request_hash(self, service_api_key_hash: str, *, purpose: str | None = None) -> str:
        """Return a hash of the area and the hash of the API key. Never pass the key itself.

        A ``purpose`` distinguishes work on the same request that has a journal of its own. The
        result is part of journal file names, so the algorithm must not change.
        """
        if not (service_api_key_hash and is_unicode(service_api_key_hash)):
            raise InvalidValueError(
                field="service_api_key_hash",
                value=type(service_api_key_hash).__name__,  # the value may be the key itself
                problem="must be non-empty text",
            )
        zooms = ",".join(str(zoom) for zoom in self.zoom_levels)
        identity = f"{self.area.place_key}|{zooms}|{self.sector_class.value}|{service_api_key_hash}"
        if purpose is not None:
            identity += f"|{purpose}"
        return sha256(identity.encode("utf-8")).hexdigest()[:REQUEST_HASH_DIGITS]

    def get_correlation_id(self, service_api_key_hash: str) -> str:
        """Return the id of the request's calls in the audit log."""
        return f"{self.flight_id}/{self.request_hash(service_api_key_hash)}"

    def journal_name(self, service_api_key_hash: str, *, purpose: str | None = None) -> str:
        return f"{self.flight_id}__{self.request_hash(service_api_key_hash, purpose=purpose)}.json"


@frozen(kw_only=True)
class TileSummary:
    """One line of the provider's listing."""

    tile_id: TileId
    produced_at: datetime
    resolution_m_per_px: float = field(converter=as_float)
    estimated_bytes: int
    sha256: str | None = None
    """The digest of the tile's bytes, if the listing has one."""

    def __attrs_post_init__(self) -> None:
        if not (
            type(self.tile_id) is TileId
            and type(self.produced_at) is datetime
            and self.produced_at.tzinfo is UTC
            and type(self.resolution_m_per_px) is float
            and 0.0 < self.resolution_m_per_px < math.inf
            and type(self.estimated_bytes) is int
            and 0 <= self.estimated_bytes <= TILE_BYTES_MAX
            and self.sha256 is None
        ):
            check_fields(self, _SUMMARY_CHECKS)


_SUMMARY_CHECKS = {
    "tile_id": instance(TileId),
    "produced_at": aware,
    "resolution_m_per_px": positive,
    "estimated_bytes": integer(0, TILE_BYTES_MAX),
    "sha256": validators.optional(sha256_hex),
}


_REQUEST_HASH = re.compile(rf"[0-9a-f]{{{REQUEST_HASH_DIGITS}}}", re.ASCII)


EXAMPLES_MAX = 3


@frozen(kw_only=True)
class TileFailures:
    """Tiles of a batch that were not delivered for the same reason."""

    reason: str
    tiles: int = field(default=0, validator=integer(0))
    examples: tuple[str, ...] = ()
    """A few of the tiles."""

    def add(self, tile: str) -> "TileFailures":
        """Return the group with one more tile."""
        examples = self.examples
        if len(examples) < EXAMPLES_MAX:
            examples = (*examples, tile)
        return evolve(self, tiles=self.tiles + 1, examples=examples)


class DownloadOutcome(StrEnum):
    """How a download ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILURE = "failure"
    IDEMPOTENT_NO_OP = "idempotent_no_op"


@frozen(kw_only=True)
class DownloadTally:
    """Counts for some tiles of a batch. Tallies of disjoint groups add up to the batch's tally."""

    tiles_downloaded: int = field(default=0, validator=integer(0))
    """Tiles stored, including the downgraded ones."""
    tiles_rejected_resolution: int = field(default=0, validator=integer(0))
    tiles_rejected_freshness: int = field(default=0, validator=integer(0))
    tiles_downgraded: int = field(default=0, validator=integer(0))
    tiles_missing: int = field(default=0, validator=integer(0))
    """Tiles that are listed, but absent at the provider."""
    tiles_failed: int = field(default=0, validator=integer(0))
    bytes_downloaded: int = field(default=0, validator=integer(0))
    retry_count: int = field(default=0, validator=integer(0))

    def __attrs_post_init__(self) -> None:
        if self.tiles_downgraded > self.tiles_downloaded:
            raise InvalidValueError(
                field="DownloadTally.tiles_downgraded",
                value=self.tiles_downgraded,
                problem=f"exceeds tiles_downloaded, {self.tiles_downloaded}, which includes them",
            )

    def __add__(self, other: "DownloadTally") -> "DownloadTally":
        if not isinstance(other, DownloadTally):
            return NotImplemented
        return DownloadTally(
            **{
                item.name: getattr(self, item.name) + getattr(other, item.name)
                for item in fields(DownloadTally)
            }
        )

    @property
    def tiles_accounted(self) -> int:
        """The number of tiles with a known result."""
        rejected = self.tiles_rejected_resolution + self.tiles_rejected_freshness
        return self.tiles_downloaded + rejected + self.tiles_missing + self.tiles_failed

    def is_complete(self, tiles_requested: int) -> bool:
        """Return whether every tile was stored, rejected by a gate or absent at the provider."""
        return self.tiles_accounted == tiles_requested and self.tiles_failed == 0


def determine_download_outcome(
    tally: DownloadTally, tiles_requested: int, *, aborted: bool = False
) -> DownloadOutcome:
    """Return the outcome of a batch.

    Success: every tile was stored, rejected by a gate or absent at the provider; a retry would not
    change that. Failure: an error ended the run (``aborted``), or every attempted tile failed.
    Partial: otherwise. Some tiles failed or were not attempted, and can be retried.
    """
    if aborted:
        return DownloadOutcome.FAILURE
    if tally.is_complete(tiles_requested):
        return DownloadOutcome.SUCCESS
    answered = tally.tiles_accounted - tally.tiles_failed
    return DownloadOutcome.PARTIAL if answered else DownloadOutcome.FAILURE


def _check_request_hash(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if not (isinstance(value, str) and _REQUEST_HASH.fullmatch(value)):
        raise InvalidValueError(
            field=format_field_name(instance, attribute),
            value=value,
            problem=f"must be {REQUEST_HASH_DIGITS} lower-case hex digits",
        )


@frozen(kw_only=True)
class DownloadBatchReport:
    """The result of one download, with the fields that operators see."""

    outcome: DownloadOutcome = field(validator=instance(DownloadOutcome))
    flight_id: str = field(validator=name)
    request_hash: str = field(validator=_check_request_hash)
    tiles_requested: int = field(default=0, validator=integer(0))
    tiles_downloaded: int = 0
    tiles_rejected_resolution: int = 0
    tiles_rejected_freshness: int = 0
    tiles_downgraded: int = 0
    tiles_missing: int = 0
    tiles_failed: int = 0
    bytes_downloaded: int = 0
    retry_count: int = 0
    next_retry_at_s: float | None = field(default=None, validator=validators.optional(number(0)))
    """When another call may fetch more; ``None`` if it is complete, or would fail the same way."""
    tiles_reused: int = field(default=0, validator=integer(0))
    """Tiles among ``tiles_downloaded`` that were in the cache already; they were not fetched."""
    reasons: tuple[str, ...] = ()
    """Why tiles are not in the cache although nothing failed: the gates, or absent tiles."""
    failures: tuple[TileFailures, ...] = ()
    """The failed tiles, by reason."""

    def __attrs_post_init__(self) -> None:
        tally = self.tally  # raises on impossible counts
        if self.tiles_reused > self.tiles_downloaded:
            self._refuse(f"reuses more tiles, {self.tiles_reused}, than it has")
        if self.outcome is DownloadOutcome.IDEMPOTENT_NO_OP:
            if self.tiles_requested or tally != DownloadTally(
                tiles_downloaded=self.tiles_downloaded
            ):
                self._refuse("reports work for a no-op")
        elif tally.tiles_accounted > self.tiles_requested:
            self._refuse(f"accounts for more than the {self.tiles_requested} tiles requested")
        elif self.outcome is DownloadOutcome.SUCCESS and not tally.is_complete(
            self.tiles_requested
        ):
            self._refuse("cannot be a success: tiles failed or were not attempted")
        elif self.outcome is DownloadOutcome.PARTIAL and tally.is_complete(self.tiles_requested):
            self._refuse("cannot be partial: every tile was stored, rejected or absent")

    def add_pass(self, earlier: "DownloadBatchReport | None") -> "DownloadBatchReport":
        """Return the report of this pass over an area, with the traffic of the earlier passes.

        After a pass that failed before the area was listed, the earlier counts still hold.
        """
        if earlier is None:
            return self
        last = self
        is_cut_short = self.tiles_requested < earlier.tiles_requested
        if self.outcome is DownloadOutcome.FAILURE and is_cut_short:
            last = evolve(earlier, outcome=self.outcome, next_retry_at_s=self.next_retry_at_s)
        # What an earlier pass stored is in the cache now, but was fetched by this download.
        reused = earlier.tiles_reused if earlier.tiles_requested else last.tiles_reused
        return evolve(
            last,
            bytes_downloaded=self.bytes_downloaded + earlier.bytes_downloaded,
            retry_count=self.retry_count + earlier.retry_count,
            tiles_reused=min(reused, last.tiles_downloaded),
        )

    @property
    def tiles_left(self) -> int:
        """How many tiles failed or were not attempted."""
        return max(0, self.tiles_requested - self.tally.tiles_accounted) + self.tiles_failed

    @property
    def tally(self) -> DownloadTally:
        """The counts of the report."""
        return DownloadTally(
            **{item.name: getattr(self, item.name) for item in fields(DownloadTally)}
        )

    @classmethod
    def from_tally(
        cls,
        tally: DownloadTally,
        *,
        flight_id: str,
        request_hash: str,
        tiles_requested: int,
        aborted: bool = False,
        next_retry_at_s: float | None = None,
        tiles_reused: int = 0,
        reasons: Iterable[str] = (),
        failures: Iterable[TileFailures] = (),
    ) -> "DownloadBatchReport":
        """Build the report of a run; ``determine_download_outcome`` computes the outcome from the
        counts.
        """
        return cls(
            outcome=determine_download_outcome(tally, tiles_requested, aborted=aborted),
            flight_id=flight_id,
            request_hash=request_hash,
            tiles_requested=tiles_requested,
            next_retry_at_s=next_retry_at_s,
            tiles_reused=tiles_reused,
            reasons=tuple(reasons),
            failures=tuple(failures),
            **asdict(tally),
        )

    @classmethod
    def for_no_op(
        cls, *, flight_id: str, request_hash: str, tiles_journaled: int
    ) -> "DownloadBatchReport":
        """Build the report for a request that the journal already contains in full."""
        return cls(
            outcome=DownloadOutcome.IDEMPOTENT_NO_OP,
            flight_id=flight_id,
            request_hash=request_hash,
            tiles_downloaded=tiles_journaled,
        )

    def _refuse(self, problem: str) -> None:
        raise InvalidValueError(field="DownloadBatchReport", value=self.tally, problem=problem)


def combine_reports(
    reports: Sequence[DownloadBatchReport], *, aborted: bool = False
) -> DownloadBatchReport:
    """Return the report of several areas of one flight: the sum, and the worst outcome.

    Areas that were already complete add nothing, unless all of them were. ``aborted`` means that
    an error ended the last one.
    """
    if len(reports) == 1:
        return reports[0]
    hashes = ",".join(report.request_hash for report in reports)
    request_hash = sha256(hashes.encode("ascii")).hexdigest()[:REQUEST_HASH_DIGITS]
    flight_id = reports[0].flight_id
    worked = [one for one in reports if one.outcome is not DownloadOutcome.IDEMPOTENT_NO_OP]
    if not worked:
        return DownloadBatchReport.for_no_op(
            flight_id=flight_id,
            request_hash=request_hash,
            tiles_journaled=sum(report.tiles_downloaded for report in reports),
        )
    waits = [one.next_retry_at_s for one in worked if one.next_retry_at_s is not None]
    return DownloadBatchReport.from_tally(
        sum((report.tally for report in worked), DownloadTally()),
        flight_id=flight_id,
        request_hash=request_hash,
        tiles_requested=sum(report.tiles_requested for report in worked),
        aborted=aborted,
        next_retry_at_s=min(waits, default=None),
        tiles_reused=sum(report.tiles_reused for report in worked),
        reasons=[reason for report in worked for reason in report.reasons],
        failures=_combine_failures(group for report in worked for group in report.failures),
    )


def _combine_failures(groups: Iterable[TileFailures]) -> list[TileFailures]:
    """Return one group for each reason."""
    found: dict[str, TileFailures] = {}
    for group in groups:
        known = found.get(group.reason, TileFailures(reason=group.reason))
        found[group.reason] = evolve(
            known,
            tiles=known.tiles + group.tiles,
            examples=(*known.examples, *group.examples)[:EXAMPLES_MAX],
        )
    return list(found.values())
