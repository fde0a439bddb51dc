"""Checking every byte of a cache, over a store that is scripted."""

from collections.abc import Iterator

from attrs import define, field

from tileferry.application.cache.verification import (
    DAMAGE_EXAMPLES_MAX,
    CacheVerification,
    DamageExample,
)
from tileferry.application.ports.inventory import (
    DamagedBlob,
    DamagedSegment,
    SegmentTally,
    VerificationFinding,
)
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.domain.tiles import BlobRef, TileId

TILE = TileId(source="s", zoom=1, x=0, y=0)
TALLY = SegmentTally(segment=1, size_bytes=100, live_tiles=3, live_bytes=60, dead_bytes=20)


@define
class ScriptedStore:
    """Finds what it is told to, once the cache was checked."""

    findings: list[VerificationFinding]
    is_checked: bool = field(default=False, init=False)

    def check(self) -> None:
        self.is_checked = True

    def verify(
        self,
        progress: ProgressListener = NULL_LISTENER,  # noqa: ARG002  # nothing to report
    ) -> Iterator[VerificationFinding]:
        assert self.is_checked
        return iter(self.findings)

    def find_problem(self, tile_id: TileId, blob: BlobRef) -> str | None:  # noqa: ARG002  # never called
        raise AssertionError


def verify(*findings: VerificationFinding) -> CacheVerification:
    store = ScriptedStore([*findings])
    return CacheVerification(store=lambda: store, check_cache=store.check)


def test_sound_cache_is_counted() -> None:
    report = verify(TALLY, TALLY).verify()
    assert report.sound
    assert (report.tiles, report.live_bytes, report.dead_bytes) == (6, 120, 40)


def test_damage_is_counted_and_first_examples_are_kept() -> None:
    blob = DamagedBlob(tile_id=TILE, segment=1, problem="checksum")
    segment = DamagedSegment(segment=2, problem="header")
    report = verify(segment, *[blob] * DAMAGE_EXAMPLES_MAX, TALLY).verify()
    assert not report.sound
    assert (report.damaged_tiles, report.damaged_segments) == (DAMAGE_EXAMPLES_MAX, 1)
    assert len(report.damage) == DAMAGE_EXAMPLES_MAX
    assert report.damage[:2] == [
        DamageExample(tile_id=None, segment=2, problem="header"),
        DamageExample(tile_id=TILE, segment=1, problem="checksum"),
    ]
