"""The validator's rules: what a sealed raw partition must satisfy to be a success.

The rules are pure functions of the manifest and the damage found while reading the bytes back. Ages
are computed at the sealing time, so the same raw partition always gets the same verdict.
"""

from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from tileferry.domain.errors import FreshnessRejectionError
from tileferry.domain.partitions.manifest import ManifestEntry, PartitionDamage, PartitionHeader
from tileferry.domain.runs import Verdict, VerdictOutcome
from tileferry.domain.text import printable
from tileferry.domain.tiles import (
    FreshnessLabel,
    FreshnessRule,
    ResolutionGate,
    ResolutionVerdict,
    TileSet,
)
from tileferry.domain.validation import as_float, instance, integer, number

REASON_CHARS_MAX = 200
REASONS_MAX = 12
"""Each kind of finding is one reason, with its count and first example."""


@frozen(kw_only=True)
class ValidationRules:
    """The limits that the operator accepts. Shares are relative to the tiles that the provider
    listed.

    A finding within its share needs review but does not fail the partition.
    """

    min_tiles: int = field(default=1, validator=integer(1))
    max_missing_share: float = field(default=0.0, converter=as_float, validator=number(0, 1))
    """Tiles that the provider listed but could not deliver."""
    max_failed_share: float = field(default=0.0, converter=as_float, validator=number(0, 1))
    max_rejected_share: float = field(default=0.0, converter=as_float, validator=number(0, 1))
    """Tiles rejected by the downloader's gates: too fine, too coarse or too old."""
    max_downgraded_share: float = field(default=0.1, converter=as_float, validator=number(0, 1))
    resolution: ResolutionGate = field(factory=ResolutionGate, validator=instance(ResolutionGate))
    freshness: FreshnessRule = field(factory=FreshnessRule, validator=instance(FreshnessRule))


def judge_partition(
    header: PartitionHeader,
    entries: Iterable[ManifestEntry],
    damages: Iterable[PartitionDamage],
    rules: ValidationRules,
) -> Verdict:
    """Judge a raw partition. Both iterables are read once, completely."""
    found = _Findings()
    for entry in entries:
        found.add(entry, header, rules)
    for damage in damages:
        found.damaged.add(f"{damage.subject}: {damage.problem}")
    failures = [*_find_failures(header, found, rules)]
    remarks = [*_find_remarks(header, found)]
    for excess, reason in _check_shares(header, found, rules):
        (failures if excess else remarks).append(reason)
    if failures:
        outcome, reasons = VerdictOutcome.FAILED, failures + remarks
    else:
        outcome = VerdictOutcome.NEEDS_REVIEW if remarks else VerdictOutcome.PASSED
        reasons = remarks
    return Verdict(
        run_id=header.run_id,
        outcome=outcome,
        reasons=tuple(_shorten(reason) for reason in reasons[:REASONS_MAX]),
    )


@define
class _FindingCount:
    """The count of one kind of finding, and its first example."""

    count: int = 0
    first: str = ""

    def add(self, example: str) -> None:
        self.first = self.first or example
        self.count += 1


@define
class _Findings:
    """The findings on the tiles of a raw partition."""

    stored: int = 0
    damaged: _FindingCount = field(factory=_FindingCount)
    misplaced: _FindingCount = field(factory=_FindingCount)
    outside_resolution: _FindingCount = field(factory=_FindingCount)
    stale: _FindingCount = field(factory=_FindingCount)
    downgraded: _FindingCount = field(factory=_FindingCount)
    _seen: TileSet | None = None

    def add(self, entry: ManifestEntry, header: PartitionHeader, rules: ValidationRules) -> None:
        tile = entry.tile_id
        if self._seen is None:
            self._seen = TileSet(header.area.coverage)
        # A partition has one source. A tile of another source, or one listed twice, is misplaced.
        known = tile in self._seen or tile.source != header.key.source
        if known or not self._seen.add(tile):
            self.misplaced.add(str(tile))
            return
        self.stored += 1
        if rules.resolution.judge(entry.resolution_m_per_px) is not ResolutionVerdict.ACCEPTED:
            self.outside_resolution.add(f"{tile} with {entry.resolution_m_per_px:g} m/px")
        try:
            label = rules.freshness.judge(
                tile,
                header.area.sector_class,
                produced_at=entry.produced_at,
                now=header.sealed_at,
            )
        except FreshnessRejectionError:
            self.stale.add(f"{tile} of {entry.produced_at.isoformat()}")
            return
        # A tile downgraded when it was stored stays downgraded, even if the rule has changed.
        if FreshnessLabel.DOWNGRADED in {label, entry.freshness}:
            self.downgraded.add(f"{tile} of {entry.produced_at.isoformat()}")


def _find_failures(
    header: PartitionHeader, found: _Findings, rules: ValidationRules
) -> Iterator[str]:
    """Yield the findings that always fail the partition."""
    tally, listed = header.tally, header.tiles_listed
    if not listed:
        yield "the provider lists no tiles for the area"
    if tally.tiles_accounted < listed:
        yield f"{listed - tally.tiles_accounted} of {listed} listed tiles were not attempted"
    if found.stored < tally.tiles_downloaded:
        yield f"{found.stored} tiles found, {tally.tiles_downloaded} were stored"
    if found.stored < rules.min_tiles:
        yield f"{found.stored} tiles found, minimum {rules.min_tiles}"
    if found.damaged.count:
        yield f"{found.damaged.count} damaged, first {found.damaged.first}"
    for kind, problem in (
        (found.misplaced, "outside the area, from another source or duplicated"),
        (found.outside_resolution, "outside the accepted resolution"),
        (found.stale, f"too old for sector {header.area.sector_class.value}"),
    ):
        if kind.count:
            yield f"{_format_tile_count(kind.count)} {problem}, first {kind.first}"


def _find_remarks(header: PartitionHeader, found: _Findings) -> Iterator[str]:
    """Yield the findings that only need review."""
    extra = found.stored - header.tally.tiles_downloaded
    if extra > 0:
        yield f"{_format_tile_count(extra)} no longer listed by the provider"


def _check_shares(
    header: PartitionHeader, found: _Findings, rules: ValidationRules
) -> Iterator[tuple[bool, str]]:
    """Yield the findings that have a share limit, and whether each exceeds it."""
    tally, listed = header.tally, header.tiles_listed
    rejected = tally.tiles_rejected_resolution + tally.tiles_rejected_freshness
    for count, problem, share_max in (
        (tally.tiles_missing, "missing", rules.max_missing_share),
        (tally.tiles_failed, "failed", rules.max_failed_share),
        (rejected, "rejected by a gate", rules.max_rejected_share),
        (found.downgraded.count, "downgraded", rules.max_downgraded_share),
    ):
        if count:
            share = count / listed if listed else 1.0
            first = f", first {found.downgraded.first}" if problem == "downgraded" else ""
            figures = f"{share:.2%}, limit {share_max:.2%}"
            yield share > share_max, f"{count} of {listed} tiles {problem} ({figures}){first}"


def _format_tile_count(count: int) -> str:
    return f"{count} tile is" if count == 1 else f"{count} tiles are"


def _shorten(reason: str) -> str:
    """Return a reason as one safe line of limited length."""
    shown = printable(reason, limit=REASON_CHARS_MAX)
    return shown if len(shown) <= REASON_CHARS_MAX else f"{shown[: REASON_CHARS_MAX - 1]}…"
