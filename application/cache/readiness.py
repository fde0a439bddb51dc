"""Readiness: whether the cached tiles of an area are good enough to fly it."""

import heapq
from collections.abc import Callable, Container, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property

from attrs import define, field, frozen

from tileferry.application.cache.tile_lookup import query_area
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.inventory import VerifiableStore
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressListener,
    Task,
)
from tileferry.application.ports.tiles import AbsentTiles, TileCatalogue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    Defect,
    Flaw,
    FlawRegion,
    Flight,
    FlightStandard,
    FreshnessRule,
    ReadinessCount,
    ReadinessMap,
    ReadinessVerdict,
    ResolutionGate,
    SectorClass,
    TileCoverage,
    TileId,
    TileMetadata,
    judge_area,
)
from tileferry.domain.tiles.bbox import enclose_boxes
from tileferry.domain.tiles.coverage import check_area_size
from tileferry.domain.tiles.place import describe_place
from tileferry.domain.tiles.readiness import NO_TILES, REPAIRABLE_FLAWS, combine_verdicts

_DAY = timedelta(days=1)

EXAMPLES_MAX = 3
"""Maximum number of examples of each flaw."""
PATCHES_MAX = 1_000
REPAIR_BOXES_MAX = 4
"""Maximum for each flaw and zoom level, so that the map of an area full of holes still opens."""

BytesCheck = Callable[[TileId, BlobRef], str | None]
"""Reads all bytes of a tile and returns the problem, if any."""


@frozen(kw_only=True)
class FlawExample:
    """A tile with a flaw, or a region of tiles with the same flaw."""

    flaw: Flaw
    tile_id: TileId
    tiles: int
    detail: str


@define(kw_only=True, slots=False)  # no slots: cached properties need a __dict__
class ReadinessReport:
    """The flaws of an area, and the verdict."""

    coverage: TileCoverage
    source: str
    standard: FlightStandard
    bytes_checked: bool
    marks: ReadinessMap
    defective: tuple[FlawExample, ...]

    @cached_property
    def by_zoom(self) -> dict[int, ReadinessCount]:
        """The number of tiles and of each flaw, by zoom level."""
        return self.marks.count_by_zoom()

    @cached_property
    def total(self) -> ReadinessCount:
        """The counts of all zoom levels together."""
        return sum(self.by_zoom.values(), NO_TILES)

    @cached_property
    def verdict(self) -> ReadinessVerdict:
        """GO or NO-GO."""
        return judge_area(self.by_zoom, self.standard)

    def iter_patches(self) -> Iterator[FlawRegion]:
        """Yield the locations of the flaws as rectangles; their number is limited."""
        for zoom, count in self.by_zoom.items():
            for flaw, tiles in count.flaws.items():
                if tiles:
                    yield from self.marks.find_regions(zoom, flaw, limit=PATCHES_MAX)

    @cached_property
    def examples(self) -> tuple[FlawExample, ...]:
        """The worst examples of each flaw, the worst flaw first; for holes, the widest."""
        holes = (patch for patch in self.iter_patches() if patch.flaw is Flaw.HOLE)
        widest = heapq.nlargest(EXAMPLES_MAX, holes, key=lambda patch: patch.flawed)
        found = [*self.defective, *(_describe_hole(patch, self.source) for patch in widest)]
        order = list(Flaw)
        return tuple(sorted(found, key=lambda example: order.index(example.flaw)))

    def find_repair_boxes(
        self, flaws: Container[Flaw] = REPAIRABLE_FLAWS
    ) -> tuple[tuple[BBox, tuple[int, ...]], ...]:
        """Return boxes with zoom levels that cover every one of these flaws after a NO-GO.

        There is one box, or one on each side of the antimeridian. For a shape there are more, from
        west to east, so that they contain less of what is outside.
        """
        sides: dict[bool, list[FlawRegion]] = {}
        for patch in self.iter_patches() if not self.verdict.is_go else ():
            if patch.flaw in flaws:
                east = patch.tiles.x_min * 2 < 1 << patch.tiles.zoom
                crosses = self.coverage.bbox.crosses_antimeridian
                sides.setdefault(crosses and east, []).append(patch)
        boxes_max = 1 if self.coverage.shape is None else REPAIR_BOXES_MAX
        return tuple(
            box
            for _, patches in sorted(sides.items())
            for box in _split_patches(patches, boxes_max)
        )


@define(kw_only=True)
class FlightReadiness:
    """The use case. It takes no lock: a tile that a writer moved meanwhile is read again."""

    tile_metadata_store: TileCatalogue
    check_bytes: BytesCheck | None = None
    """``None``: no tile is read."""
    absent_tiles: AbsentTiles | None = None
    progress: ProgressListener = NULL_LISTENER

    def assess(
        self,
        coverage: TileCoverage,
        standard: FlightStandard,
        *,
        source: str,
    ) -> ReadinessReport:
        """Assess each tile of the area; uses one byte of memory for each tile, and one page of
        rows.
        """
        marks, worst = ReadinessMap(coverage), _WorstTiles()
        processed = ItemsProcessed(task=Task.CHECK_READINESS, total=coverage.count)
        for tile in query_area(self.tile_metadata_store, coverage, source=source):
            stored, problem = self._read_stored(tile)
            if stored is None:
                self.progress(processed)
                continue
            tile = stored  # noqa: PLW2901  # the newer version
            defects = standard.find_defects(tile)
            if problem:
                defects += (Defect(Flaw.DAMAGED, 0.0, problem),)
            marks.mark(tile.tile_id, [defect.flaw for defect in defects])
            for defect in defects:
                worst.add(tile.tile_id, defect)
            self.progress(processed)
        self._mark_absent(marks, worst, source)
        return ReadinessReport(
            coverage=coverage,
            source=source,
            standard=standard,
            bytes_checked=self.check_bytes is not None,
            marks=marks,
            defective=worst.to_examples(),
        )

    def _read_stored(self, tile: TileMetadata) -> tuple[TileMetadata | None, str | None]:
        """Return the current version of a tile and its damage; ``None`` if it was evicted.

        Compaction moves tiles and eviction removes them while this reads: what cannot be read is
        damaged only if its row still refers to the same bytes.
        """
        if self.check_bytes is None:
            return tile, None
        while (problem := self.check_bytes(tile.tile_id, tile.blob)) is not None:
            current = self.tile_metadata_store.get_metadata(tile.tile_id)
            if current is None or current.blob == tile.blob:
                return current, problem
            tile = current
        return tile, None

    def _mark_absent(self, marks: ReadinessMap, worst: "_WorstTiles", source: str) -> None:
        """Tell tiles that the provider does not have from other holes."""
        if self.absent_tiles is None:
            return
        for tile_id, at in self.absent_tiles.query_absent(marks.coverage, source=source):
            if marks.mark_absent(tile_id):
                detail = f"absent at the provider on {at.astimezone(UTC).date().isoformat()}"
                worst.add(tile_id, Defect(Flaw.ABSENT, 0.0, detail))


@frozen(kw_only=True)
class ReadinessQuery:
    """The area to assess, and the criteria."""

    coverage: TileCoverage
    sector: SectorClass
    now: datetime
    flown_at: datetime
    source: str
    holes_max: int = 0
    accepts_absent: bool | None = None
    """``None``: as configured."""
    confirmed_within_days: float | None = None
    """``None``: as configured."""
    quick: bool = False
    """Use only the metadata; read no tile."""

    def __attrs_post_init__(self) -> None:
        check_area_size(self.coverage)


@define(kw_only=True)
class ReadinessCheck:
    """Assesses areas by the configured gates; a download can run at the same time."""

    tile_metadata_store: TileCatalogue
    freshness: FreshnessRule
    resolution: ResolutionGate
    store: Callable[[], VerifiableStore]
    """Opens the store, after the cache was checked."""
    check_cache: Callable[[], None]
    """Raises if the database belongs to another cache."""
    clock: Clock
    absent_tiles: AbsentTiles | None = None
    accepts_absent: bool = False
    """Unless a query says otherwise: whether tiles that the provider does not have are accepted."""
    confirmed_within_days: float | None = None
    """Unless a query says otherwise: the time within which each tile must have been confirmed."""
    progress: ProgressListener = NULL_LISTENER

    def check(self, query: ReadinessQuery) -> ReadinessReport:
        """Assess an area."""
        standard = FlightStandard(
            sector=query.sector,
            now=query.now,
            flown_at=query.flown_at,
            holes_max=query.holes_max,
            accepts_absent=self.accepts_absent
            if query.accepts_absent is None
            else query.accepts_absent,
            confirmed_within_days=self.confirmed_within_days
            if query.confirmed_within_days is None
            else query.confirmed_within_days,
            freshness=self.freshness,
            resolution=self.resolution,
        )
        use_case = FlightReadiness(
            tile_metadata_store=self.tile_metadata_store,
            absent_tiles=self.absent_tiles,
            progress=self.progress,
        )
        if not query.quick:
            self.check_cache()
            use_case.check_bytes = self.store().find_problem
        return use_case.assess(query.coverage, standard, source=query.source)

    def check_flight(
        self,
        flight: Flight,
        *,
        on: date | None = None,
        holes_max: int = 0,
        accepts_absent: bool | None = None,
        confirmed_within_days: float | None = None,
        quick: bool = False,
    ) -> "FlightVerdict":
        """Assess each area of a flight, today or ``on`` a later day, by its sector and source."""
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        flown_at = now if on is None else get_end_of_day(on, now, field="on")
        queries = [
            ReadinessQuery(
                coverage=item.area.coverage,
                sector=item.area.sector_class,
                now=now,
                flown_at=flown_at,
                source=item.source,
                holes_max=holes_max,
                accepts_absent=accepts_absent,
                confirmed_within_days=confirmed_within_days,
                quick=quick,
            )
            for item in flight.areas
        ]
        return FlightVerdict(reports=tuple(map(self.check, queries)))


@define(slots=False)
class FlightVerdict:
    """The readiness of several areas, and the verdict for all of them together."""

    reports: tuple[ReadinessReport, ...]

    @cached_property
    def verdict(self) -> ReadinessVerdict:
        return combine_verdicts(
            [
                (f"zoom {_format_zooms(one)} at {describe_place(one.coverage.bbox)}", one.verdict)
                for one in self.reports
            ]
        )

    @property
    def bytes_checked(self) -> bool:
        return all(report.bytes_checked for report in self.reports)

    @cached_property
    def by_zoom(self) -> dict[int, ReadinessCount]:
        """The counts of all areas by zoom level; a tile of two areas counts twice."""
        found: dict[int, ReadinessCount] = {}
        for report in self.reports:
            for zoom, count in report.by_zoom.items():
                found[zoom] = found.get(zoom, NO_TILES) + count
        return dict(sorted(found.items()))

    @cached_property
    def total(self) -> ReadinessCount:
        return sum(self.by_zoom.values(), NO_TILES)


def _format_zooms(report: ReadinessReport) -> str:
    return ", ".join(map(str, report.coverage.zoom_levels))


def get_end_of_day(day: date, now: datetime, *, field: str) -> datetime:
    """Return the end of a day in UTC: a tile that is fresh then was fresh all day."""
    end = datetime.combine(day, time.max, UTC)
    if end < now - _DAY:  # yesterday in UTC may still be today west of Greenwich
        raise InvalidValueError(
            field=field,
            value=day.isoformat(),
            problem="is over",
            remedy="judge for today or a day to come",
        )
    return max(end, now)


@define
class _WorstTiles:
    """The worst tiles of each flaw; among equals, the first."""

    _kept: dict[Flaw, list[tuple[float, int, TileId, Defect]]] = field(factory=dict, init=False)
    _number: int = field(default=0, init=False)

    def add(self, tile_id: TileId, defect: Defect) -> None:
        """Keep a tile if it is among the worst."""
        kept = self._kept.setdefault(defect.flaw, [])
        self._number -= 1  # later tiles rank lower among equals
        entry = (defect.severity, self._number, tile_id, defect)
        if len(kept) < EXAMPLES_MAX:
            heapq.heappush(kept, entry)
        elif entry > kept[0]:
            heapq.heapreplace(kept, entry)

    def to_examples(self) -> tuple[FlawExample, ...]:
        """Return the examples; for each flaw, the worst first."""
        return tuple(
            FlawExample(flaw=flaw, tile_id=tile_id, tiles=1, detail=defect.detail)
            for flaw, kept in self._kept.items()
            for _, _, tile_id, defect in sorted(kept, reverse=True)
        )


def _describe_hole(patch: FlawRegion, source: str) -> FlawExample:
    tiles = patch.tiles
    width, height = tiles.x_max - tiles.x_min + 1, tiles.y_max - tiles.y_min + 1
    if tiles.count == 1:
        detail = "not in the cache"
    elif patch.is_exact:
        detail = f"{width:,} x {height:,} tiles from here to the south-east are not in the cache"
    else:
        detail = f"{patch.flawed:,} of {width:,} x {height:,} tiles from here are not in the cache"
    return FlawExample(
        flaw=Flaw.HOLE,
        tile_id=TileId(source=source, zoom=tiles.zoom, x=tiles.x_min, y=tiles.y_min),
        tiles=patch.flawed,
        detail=detail,
    )


def _split_patches(
    patches: list[FlawRegion], boxes_max: int
) -> Iterator[tuple[BBox, tuple[int, ...]]]:
    """Yield the boxes around neighbours, with the zoom levels of their flaws."""
    ordered = sorted(patches, key=lambda patch: patch.tiles.bounds.west)
    size = -(-len(ordered) // boxes_max)
    for start in range(0, len(ordered), size):
        near = ordered[start : start + size]
        box = enclose_boxes([patch.tiles.bounds for patch in near])
        yield box, tuple(sorted({patch.tiles.zoom for patch in near}))
