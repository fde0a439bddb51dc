"""What a map shows of a flight."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, evolve, field

from tileferry.adapters.memory import (
    ManualClock,
    MemoryAbsentTiles,
    MemoryRefusedTiles,
    MemoryTileMetadataStore,
)
from tileferry.application.cache.flight_overlay import FlightOverlays, OverlayKind
from tileferry.application.cache.readiness import ReadinessCheck
from tileferry.application.ports.inventory import VerifiableStore
from tileferry.domain.tiles import (
    Area,
    BBox,
    BlobRef,
    Flaw,
    Flight,
    FlightArea,
    FreshnessRule,
    NewTile,
    ResolutionGate,
    SectorClass,
    TileId,
    VotingStatus,
    build_capture_source,
)
from tileferry.domain.tiles.refusal import Gate, Refusal

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
AREA = Area(
    bbox=BBox(west=36.0, south=50.0, east=36.3, north=50.2),
    zoom_levels=[11, 12],
    sector_class=SectorClass.STABLE_REAR,
)
TILES = list(AREA.coverage.tiles("sat"))
FLIGHT = Flight(flight_id="F1", areas=[FlightArea(source="sat", area=AREA, added_at=NOW)])


@define
class OverlayEnv:
    clock: ManualClock = field(factory=lambda: ManualClock(NOW.timestamp()))
    absent: MemoryAbsentTiles = field(factory=MemoryAbsentTiles)
    refused: MemoryRefusedTiles = field(factory=MemoryRefusedTiles)
    tiles: MemoryTileMetadataStore = field(init=False)
    overlays: FlightOverlays = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tiles = MemoryTileMetadataStore(clock=self.clock)
        self.overlays = FlightOverlays(
            readiness=ReadinessCheck(
                tile_metadata_store=self.tiles,
                freshness=FreshnessRule(),
                resolution=ResolutionGate(),
                store=_fail_to_open,
                check_cache=lambda: None,
                clock=self.clock,
                absent_tiles=self.absent,
            ),
            refused_tiles=self.refused,
        )

    def add(self, tile_id: TileId, *, status: VotingStatus = VotingStatus.TRUSTED) -> None:
        self.tiles.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id="F1",
                produced_at=NOW - timedelta(days=1),
                resolution_m_per_px=0.6,
                sector_class=AREA.sector_class,
                blob=BlobRef(location=(1, 0), length=10, sha256="0" * 64),
                voting_status=status,
            )
        )
        self.tiles.flush()

    def refuse(self, tile_id: TileId) -> None:
        refusal = Refusal(
            tile_id=tile_id,
            gate=Gate.RESOLUTION,
            sector_class=AREA.sector_class,
            produced_at=NOW,
            resolution_m_per_px=0.3,
            refused_at=NOW,
        )
        self.refused.record_refused([refusal])


def _fail_to_open() -> VerifiableStore:
    raise AssertionError("a quick overlay reads no tile")


@pytest.fixture
def env() -> OverlayEnv:
    return OverlayEnv()


def test_every_flaw_has_a_kind_with_its_meaning() -> None:
    assert {flaw.value for flaw in Flaw} < {kind.value for kind in OverlayKind}
    assert OverlayKind.HOLE.meaning == Flaw.HOLE.meaning
    assert OverlayKind.REFUSED.meaning == "refused by a gate"


def test_refused_holes_are_shown_apart_but_judged_as_holes(env: OverlayEnv) -> None:
    for tile in TILES[3:]:
        env.add(tile)
    env.refuse(TILES[0])
    env.refuse(TILES[5])  # stored since
    env.absent.record_absent([TILES[1]], at=NOW)
    overlay = env.overlays.build(FLIGHT)
    counts = overlay.count()
    assert {kind.value: count for kind, count in counts.items() if count} == {
        "hole": 1,
        "refused": 1,
        "absent": 1,
    }
    assert not overlay.verdict.verdict.is_go
    assert "2 tiles not in the cache, 0 allowed" in overlay.verdict.verdict.reasons
    (refused,) = [one for one in overlay.regions if one.kind is OverlayKind.REFUSED]
    assert refused.tiles.contains(TILES[0])
    assert [one.kind.value for one in overlay.regions] == ["hole", "refused", "absent"]


def test_captured_tiles_are_shown_wherever_they_are(env: OverlayEnv) -> None:
    for tile in TILES:
        env.add(tile)
    source = build_capture_source("F1")
    captured = [TileId(source=source, zoom=15, x=x, y=9) for x in (3, 4, 5)]
    for tile in captured:
        env.add(tile, status=VotingStatus.PENDING)
    env.tiles.update_voting_status(captured[2], VotingStatus.UPLOAD_GIVEUP)
    env.add(evolve(captured[0], source=build_capture_source("F2"), x=7))
    overlay = env.overlays.build(FLIGHT)
    assert [(one.kind.value, one.count, one.tiles.x_min) for one in overlay.regions] == [
        ("given_up", 1, 5),
        ("captured", 2, 3),
    ]
    assert overlay.zoom_levels == [11, 12, 15]
    assert overlay.count(15)[OverlayKind.CAPTURED] == 2
    assert overlay.count(12)[OverlayKind.CAPTURED] == 0
