"""The readiness of an area: every tile judged, the worst shown, the boxes to mend, flat memory."""

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, evolve

from tileferry.adapters.memory import ManualClock, MemoryAbsentTiles, MemoryTileMetadataStore
from tileferry.application.cache.readiness import (
    EXAMPLES_MAX,
    PATCHES_MAX,
    FlightReadiness,
    ReadinessCheck,
    ReadinessQuery,
    ReadinessReport,
    get_end_of_day,
)
from tileferry.application.ports.inventory import VerificationFinding
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressEvent,
    ProgressListener,
    Task,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    Area,
    BBox,
    BlobRef,
    Flaw,
    Flight,
    FlightArea,
    FlightStandard,
    FreshnessRule,
    NewTile,
    ResolutionGate,
    SectorClass,
    Shape,
    TileCoverage,
    TileId,
    TileMetadata,
    tile_bounds,
)

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
DAY = timedelta(days=1)
AREA = TileCoverage(
    bbox=BBox(west=36.1, south=49.9, east=36.5, north=50.1), zoom_levels=[11, 13, 14]
)
ACROSS = TileCoverage(bbox=BBox(west=178.0, south=-2.0, east=-178.0, north=2.0), zoom_levels=[8])
CONFLICT = FlightStandard(sector=SectorClass.ACTIVE_CONFLICT, now=NOW, flown_at=NOW)
REAR = evolve(CONFLICT, sector=SectorClass.STABLE_REAR)


@pytest.fixture
def rows() -> MemoryTileMetadataStore:
    return MemoryTileMetadataStore(clock=ManualClock(NOW.timestamp()))


def new_tile(tile_id: TileId, *, days: float = 1, m_per_px: float = 0.6) -> NewTile:
    return NewTile(
        tile_id=tile_id,
        flight_id="F1",
        produced_at=NOW - days * DAY,
        resolution_m_per_px=m_per_px,
        sector_class=SectorClass.STABLE_REAR,
        blob=BlobRef(location=(1, 16), length=20, sha256="ab" * 32),
    )


def store_tiles(rows: MemoryTileMetadataStore, *tiles: NewTile) -> None:
    for one in tiles:
        rows.insert_metadata(one)
    rows.flush()


def report_readiness(
    rows: MemoryTileMetadataStore,
    *,
    area: TileCoverage = AREA,
    standard: FlightStandard = CONFLICT,
    damaged: Sequence[TileId] = (),
) -> ReadinessReport:
    def check(tile_id: TileId, _blob: BlobRef) -> str | None:
        return "its checksum is wrong" if tile_id in damaged else None

    use_case = FlightReadiness(tile_metadata_store=rows, check_bytes=check)
    return use_case.assess(area, standard, source="sat")


def test_complete_area_is_ready(rows: MemoryTileMetadataStore) -> None:
    store_tiles(rows, *map(new_tile, AREA.tiles("sat")))
    report = report_readiness(rows)
    assert report.verdict.is_go
    assert report.total.present == report.total.tiles == AREA.count
    assert (report.examples, list(report.iter_patches()), report.find_repair_boxes()) == (
        (),
        [],
        (),
    )


def test_each_tile_is_reported_with_total(rows: MemoryTileMetadataStore) -> None:
    events: list[ProgressEvent] = []
    FlightReadiness(tile_metadata_store=rows, progress=events.append).assess(
        AREA, CONFLICT, source="sat"
    )
    event = ItemsProcessed(task=Task.CHECK_READINESS, total=AREA.count)
    assert events == [event] * len(rows.all_tiles())


def test_flaws_are_counted_by_zoom_level(rows: MemoryTileMetadataStore) -> None:
    tiles = list(AREA.tiles("sat"))
    coarse = [one for one in tiles if one.zoom == 11]
    fine = [one for one in tiles if one.zoom == 14]
    store_tiles(
        rows,
        new_tile(coarse[0], days=200),
        *map(new_tile, coarse[1:]),
        new_tile(fine[1], m_per_px=0.3),
        new_tile(fine[2], days=400, m_per_px=0.3),
        *map(new_tile, fine[3:]),
    )
    report = report_readiness(rows, damaged=[fine[3]])
    medium = sum(1 for one in tiles if one.zoom == 13)
    found = [
        {flaw: tiles for flaw, tiles in count.flaws.items() if tiles}
        for count in report.by_zoom.values()
    ]
    assert found == [
        {Flaw.STALE: 1},
        {Flaw.HOLE: medium},
        {Flaw.DAMAGED: 1, Flaw.HOLE: 1, Flaw.STALE: 1, Flaw.SUB_SPEC: 2},
    ]
    assert not report.verdict.is_go
    in_the_rear = report_readiness(rows, standard=REAR)
    assert in_the_rear.total.flaws[Flaw.DOWNGRADED] == 1
    assert in_the_rear.total.flaws[Flaw.STALE] == 0


def test_absent_tiles_are_told_from_other_holes(rows: MemoryTileMetadataStore) -> None:
    tiles = list(AREA.tiles("sat"))
    lost, hole, stored = tiles[0], tiles[1], tiles[2]
    absent = MemoryAbsentTiles()
    absent.record_absent([lost, stored], at=NOW - 3 * DAY)
    store_tiles(rows, *map(new_tile, tiles[2:]))
    use_case = FlightReadiness(tile_metadata_store=rows, absent_tiles=absent)
    report = use_case.assess(AREA, CONFLICT, source="sat")
    assert report.verdict.reasons == (
        "1 tile not in the cache, 0 allowed",
        "1 tile absent at the provider",
    )
    assert (report.total.present, report.total.flaws[Flaw.ABSENT]) == (AREA.count - 2, 1)
    details = {example.tile_id: example.detail for example in report.examples}
    assert details[lost] == f"absent at the provider on {(NOW - 3 * DAY).date()}"
    ((box, zooms),) = report.find_repair_boxes()
    repaired = list(TileCoverage(bbox=box, zoom_levels=zooms).tiles("sat"))
    assert (hole in repaired, lost in repaired) == (True, False)


def test_tiles_of_another_source_do_not_fill_holes(rows: MemoryTileMetadataStore) -> None:
    store_tiles(rows, *map(new_tile, AREA.tiles("other")))
    report = report_readiness(rows)
    assert report.total.flaws[Flaw.HOLE] == AREA.count


def test_tile_bytes_are_checked_only_on_request(rows: MemoryTileMetadataStore) -> None:
    tiles = list(AREA.tiles("sat"))
    store_tiles(rows, *map(new_tile, tiles))
    assert not report_readiness(rows, damaged=tiles[:1]).verdict.is_go
    quick = FlightReadiness(tile_metadata_store=rows).assess(AREA, CONFLICT, source="sat")
    assert quick.verdict.is_go
    assert not quick.bytes_checked


def test_examples_are_worst_tiles_in_stable_order(rows: MemoryTileMetadataStore) -> None:
    tiles = list(AREA.tiles("sat"))
    ages = {one: 200 + 7 * n % 101 for n, one in enumerate(tiles)}
    store_tiles(rows, *(new_tile(one, days=days) for one, days in ages.items()))
    damaged = tiles[5:20]
    examples = report_readiness(rows, damaged=damaged).examples
    assert [example.tile_id for example in examples[:EXAMPLES_MAX]] == damaged[:EXAMPLES_MAX]
    oldest = sorted(tiles, key=lambda one: -ages[one])[:EXAMPLES_MAX]
    assert [example.tile_id for example in examples[EXAMPLES_MAX:]] == oldest
    assert examples[0].detail == "its checksum is wrong"
    assert examples[-1].detail == f"{ages[oldest[-1]]} days old, 183 allowed"


def test_largest_holes_are_shown_first(rows: MemoryTileMetadataStore) -> None:
    area = TileCoverage(bbox=AREA.bbox, zoom_levels=[14])
    (whole,) = area.ranges
    gap = evolve(whole, x_min=whole.x_min + 2, x_max=whole.x_min + 5, y_max=whole.y_min + 2)
    lonely = TileId(source="sat", zoom=14, x=whole.x_max, y=whole.y_max)
    store_tiles(
        rows,
        *(new_tile(one) for one in area.tiles("sat") if one != lonely and not gap.contains(one)),
    )
    first, second = report_readiness(rows, area=area).examples
    assert (str(first.tile_id), first.tiles) == (f"sat/14/{gap.x_min}/{gap.y_min}", 12)
    assert first.detail.startswith("4 x 3 tiles")
    assert (second.tile_id, second.tiles, second.detail) == (lonely, 1, "not in the cache")


def test_repair_boxes_fit_flawed_tiles_tightly(rows: MemoryTileMetadataStore) -> None:
    tiles = list(AREA.tiles("sat"))
    bad = [one for one in tiles if one.zoom == 14][40:43]
    store_tiles(rows, *(new_tile(one, days=400 if one in bad else 1) for one in tiles))
    ((box, zooms),) = report_readiness(rows).find_repair_boxes()
    assert list(TileCoverage(bbox=box, zoom_levels=zooms).tiles("sat")) == bad
    assert report_readiness(rows, standard=REAR).find_repair_boxes() == ()


def test_nonblocking_flaws_get_no_repair_box(rows: MemoryTileMetadataStore) -> None:
    tiles = list(AREA.tiles("sat"))
    old, missing = tiles[0], [one for one in tiles if one.zoom == 14][40]
    store_tiles(
        rows, *(new_tile(one, days=400 if one == old else 1) for one in tiles if one != missing)
    )
    report = report_readiness(rows, standard=REAR)
    flaws = {patch.flaw for patch in report.iter_patches()}
    assert flaws == {Flaw.DOWNGRADED, Flaw.HOLE}
    ((box, zooms),) = report.find_repair_boxes()
    assert list(TileCoverage(bbox=box, zoom_levels=zooms).tiles("sat")) == [missing]


def test_repair_boxes_are_split_at_antimeridian(rows: MemoryTileMetadataStore) -> None:
    boxes = report_readiness(rows, area=ACROSS).find_repair_boxes()
    assert [box.crosses_antimeridian for box, _ in boxes] == [False, False]
    fetched = {
        one
        for box, zooms in boxes
        for one in TileCoverage(bbox=box, zoom_levels=zooms).tiles("sat")
    }
    assert fetched == set(ACROSS.tiles("sat"))


def test_many_holes_are_merged_into_few_patches(rows: MemoryTileMetadataStore) -> None:
    area = TileCoverage(bbox=AREA.bbox, zoom_levels=[16])
    store_tiles(rows, *(new_tile(one) for one in area.tiles("sat") if (one.x + one.y) % 2))
    report = report_readiness(rows, area=area)
    holes = report.total.flaws[Flaw.HOLE]
    patches = list(report.iter_patches())
    assert holes > PATCHES_MAX >= len(patches)
    assert sum(patch.flawed for patch in patches) == holes
    assert " of " in report.examples[0].detail


class EndlessMetadataStore(MemoryTileMetadataStore):
    """Has every tile of any area, and keeps none of them."""

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        assert source is not None
        for tile_id in TileCoverage(bbox=bbox, zoom_levels=zoom_levels).tiles(source):
            old = tile_id.y % 2
            new = new_tile(tile_id, days=200 + tile_id.x % 100 if old else 1)
            yield self._to_metadata(new, self.insert_metadata(new), None)
            self._waiting.clear()


def test_memory_use_stays_near_one_byte_per_tile() -> None:
    rows = EndlessMetadataStore(clock=ManualClock(NOW.timestamp()))
    small = TileCoverage(bbox=AREA.bbox, zoom_levels=[13])
    large = TileCoverage(bbox=AREA.bbox, zoom_levels=[16])
    assert large.count > 4_000
    report_readiness(rows, area=small)
    tracemalloc.start()
    try:
        report = report_readiness(rows, area=large)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.total.flaws[Flaw.STALE] > 1_700
    assert peak_bytes < large.count + 40_000  # eight bytes a tile would be found


@define
class DamagedStore:
    """Every tile is damaged, after ``meanwhile``; it is opened only once the cache was checked."""

    meanwhile: Callable[[TileId, BlobRef], bool] = lambda *_: False
    """Whether the bytes are readable, unlike those of other tiles."""
    is_checked: bool = False

    def check(self) -> None:
        self.is_checked = True

    def open(self) -> "DamagedStore":
        assert self.is_checked
        return self

    def find_problem(self, tile_id: TileId, blob: BlobRef) -> str | None:
        return None if self.meanwhile(tile_id, blob) else "its checksum is wrong"

    def verify(
        self,
        progress: ProgressListener = NULL_LISTENER,  # noqa: ARG002  # the name in the port
    ) -> Iterator[VerificationFinding]:
        raise AssertionError("readiness must not verify the whole cache")


@pytest.mark.parametrize("quick", [True, False])
def test_query_reads_bytes_unless_quick(rows: MemoryTileMetadataStore, *, quick: bool) -> None:
    store_tiles(rows, *map(new_tile, AREA.tiles("sat")))
    report = _check(rows, DamagedStore(), quick=quick)
    assert report.verdict.is_go is quick
    assert report.bytes_checked is not quick


def _check(
    rows: MemoryTileMetadataStore, store: DamagedStore, *, quick: bool = False
) -> ReadinessReport:
    query = ReadinessQuery(
        coverage=AREA,
        sector=SectorClass.ACTIVE_CONFLICT,
        now=NOW,
        flown_at=NOW,
        source="sat",
        quick=quick,
    )
    return _build_check(rows, store).check(query)


def _build_check(rows: MemoryTileMetadataStore, store: DamagedStore) -> ReadinessCheck:
    return ReadinessCheck(
        tile_metadata_store=rows,
        freshness=FreshnessRule(),
        resolution=ResolutionGate(),
        store=store.open,
        check_cache=store.check,
        clock=ManualClock(NOW.timestamp()),
    )


def test_tile_that_was_moved_while_it_was_read_is_read_again(
    rows: MemoryTileMetadataStore,
) -> None:
    store_tiles(rows, *map(new_tile, AREA.tiles("sat")))
    moved: set[TileId] = set()

    def compact(tile_id: TileId, blob: BlobRef) -> bool:
        if tile_id in moved:
            return True
        moved.add(tile_id)
        rows.move([(tile_id, blob, evolve(blob, location=(99, blob.location[1])))])
        return False

    report = _check(rows, DamagedStore(compact))
    assert report.verdict.is_go
    assert len(moved) == AREA.count


def test_tile_that_was_evicted_while_it_was_read_is_a_hole(rows: MemoryTileMetadataStore) -> None:
    store_tiles(rows, *map(new_tile, AREA.tiles("sat")))
    gone = next(AREA.tiles("sat"))

    def evict(tile_id: TileId, _blob: BlobRef) -> bool:
        if tile_id == gone:
            rows.forget([gone])
        return tile_id != gone

    report = _check(rows, DamagedStore(evict))
    assert (report.total.flaws[Flaw.HOLE], report.total.flaws[Flaw.DAMAGED]) == (1, 0)


def test_flight_is_judged_area_by_area(rows: MemoryTileMetadataStore) -> None:
    store_tiles(rows, *map(new_tile, AREA.tiles("sat")))
    areas = [
        FlightArea(
            source=source,
            area=Area(
                bbox=AREA.bbox, zoom_levels=AREA.zoom_levels, sector_class=SectorClass.STABLE_REAR
            ),
            added_at=NOW,
        )
        for source in ("sat", "other")
    ]
    flight = Flight(flight_id="F1", areas=areas)
    check = _build_check(rows, DamagedStore())
    judged = check.check_flight(flight, on=(NOW + DAY).date(), quick=True)
    assert [report.verdict.is_go for report in judged.reports] == [True, False]
    assert {report.standard.sector for report in judged.reports} == {SectorClass.STABLE_REAR}
    assert (judged.verdict.is_go, judged.bytes_checked) == (False, False)
    assert (judged.total.tiles, judged.total.present) == (2 * AREA.count, AREA.count)
    assert list(judged.by_zoom) == [11, 13, 14]
    one = check.check_flight(evolve(flight, areas=areas[:1]), quick=True)
    assert one.verdict.is_go
    none = check.check_flight(Flight(flight_id="F2"))
    assert str(none.verdict) == "NO-GO"


def test_day_ends_in_utc_and_must_not_be_over() -> None:
    assert get_end_of_day(NOW.date() + DAY, NOW, field="on").day == (NOW + DAY).day
    assert get_end_of_day(NOW.date() - DAY, NOW, field="on") == NOW
    with pytest.raises(InvalidValueError, match="on: is over"):
        get_end_of_day(NOW.date() - 2 * DAY, NOW, field="on")


def test_only_the_tiles_of_a_shape_are_judged(rows: MemoryTileMetadataStore) -> None:
    route = Shape.from_degrees(lines=[[(36.0, 50.0), (36.9, 50.6)]])
    area = TileCoverage.from_place(route, [10, 14])
    tiles = list(area.tiles("sat"))
    holes = {tiles[0], tiles[20], tiles[-1]}
    store_tiles(rows, *(new_tile(tile) for tile in tiles if tile not in holes))
    report = report_readiness(rows, area=area)
    assert not report.verdict.is_go
    assert (report.total.tiles, report.total.present) == (len(tiles), len(tiles) - 3)
    assert {patch.tiles.bounds for patch in report.iter_patches()} == set(map(tile_bounds, holes))
    boxes = report.find_repair_boxes()
    assert len(boxes) == 3
    fetched = {
        one
        for box, zooms in boxes
        for one in TileCoverage(bbox=box, zoom_levels=zooms).tiles("sat")
    }
    assert fetched == holes
    store_tiles(rows, *map(new_tile, holes))
    assert report_readiness(rows, area=area).verdict.is_go
