"""Verify every byte of a cache."""

from collections.abc import Callable
from typing import assert_never

from attrs import define, field, frozen

from tileferry.application.ports.inventory import (
    DamagedBlob,
    DamagedSegment,
    SegmentTally,
    VerifiableStore,
    VerificationFinding,
)
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.domain.tiles import TileId

DAMAGE_EXAMPLES_MAX = 20


@frozen(kw_only=True)
class DamageExample:
    """A damaged tile, or a damaged segment."""

    tile_id: TileId | None
    segment: int
    problem: str


@define
class VerificationReport:
    """The result of a verification."""

    tiles: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    damaged_tiles: int = 0
    damaged_segments: int = 0
    damage: list[DamageExample] = field(factory=list)
    """The first ``DAMAGE_EXAMPLES_MAX`` examples."""

    @property
    def sound(self) -> bool:
        """Whether every tile is intact."""
        return not (self.damaged_tiles or self.damaged_segments)

    def add(self, finding: VerificationFinding) -> None:
        """Count one finding."""
        match finding:
            case SegmentTally():
                self.tiles += finding.live_tiles
                self.live_bytes += finding.live_bytes
                self.dead_bytes += finding.dead_bytes
            case DamagedBlob():
                self.damaged_tiles += 1
                self._keep(finding.tile_id, finding.segment, finding.problem)
            case DamagedSegment():
                self.damaged_segments += 1
                self._keep(None, finding.segment, finding.problem)
            case _:
                assert_never(finding)

    def _keep(self, tile_id: TileId | None, segment: int, problem: str) -> None:
        if len(self.damage) < DAMAGE_EXAMPLES_MAX:
            self.damage.append(DamageExample(tile_id=tile_id, segment=segment, problem=problem))


@define(kw_only=True)
class CacheVerification:
    """The use case. It takes no lock: bytes that a writer has not committed count as dead."""

    store: Callable[[], VerifiableStore]
    """Opens the store, after the cache was checked."""
    check_cache: Callable[[], None]
    """Raises if the database belongs to another cache."""
    progress: ProgressListener = NULL_LISTENER

    def verify(self) -> VerificationReport:
        report = VerificationReport()
        self.check_cache()
        for finding in self.store().verify(self.progress):
            report.add(finding)
        return report
