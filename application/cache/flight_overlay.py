"""What a map shows of a flight: the flaws of its areas, refused tiles, and what it captured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from attrs import define, frozen

from tileferry.application.cache.readiness import (
    PATCHES_MAX,
    FlightVerdict,
    ReadinessCheck,
    ReadinessReport,
)
from tileferry.application.ports.tiles import RefusedTiles
from tileferry.domain.tiles import (
    BBox,
    Flaw,
    Flight,
    TileId,
    TileRange,
    VotingStatus,
    build_capture_source,
)
from tileferry.domain.tiles.bbox import MERCATOR_LAT_MAX
from tileferry.domain.tiles.regions import find_tile_regions
from tileferry.domain.tiles.tile_id import ALL_ZOOMS

_WORLD = BBox(west=-180.0, south=-MERCATOR_LAT_MAX, east=180.0, north=MERCATOR_LAT_MAX)


class OverlayKind(StrEnum):
    """What a region of a map shows; the worst first."""

    DAMAGED = Flaw.DAMAGED.value
    HOLE = Flaw.HOLE.value
    REFUSED = "refused"
    ABSENT = Flaw.ABSENT.value
    STALE = Flaw.STALE.value
    SUB_SPEC = Flaw.SUB_SPEC.value
    UNCONFIRMED = Flaw.UNCONFIRMED.value
    DOWNGRADED = Flaw.DOWNGRADED.value
    GIVEN_UP = "given_up"
    CAPTURED = "captured"

    @property
    def meaning(self) -> str:
        """A short description, for people."""
        return _MEANINGS.get(self) or Flaw(self.value).meaning


_MEANINGS = {
    OverlayKind.REFUSED: "refused by a gate",
    OverlayKind.GIVEN_UP: "captured, upload given up",
    OverlayKind.CAPTURED: "captured by the flight",
}


@frozen(kw_only=True)
class OverlayRegion:
    """A rectangle of tiles of one kind; some of its tiles may be others if it is drawn coarsely."""

    kind: OverlayKind
    tiles: TileRange
    count: int


@frozen(kw_only=True)
class FlightOverlay:
    """The regions of a flight."""

    verdict: FlightVerdict
    regions: Sequence[OverlayRegion]
    """In the order of the kinds and zoom levels."""

    @property
    def zoom_levels(self) -> Sequence[int]:
        """The levels of the flight's areas and of its captured tiles."""
        areas = {zoom for one in self.verdict.reports for zoom in one.coverage.zoom_levels}
        return sorted(areas | {region.tiles.zoom for region in self.regions})

    def count(self, zoom: int | None = None) -> Mapping[OverlayKind, int]:
        """Return the number of tiles of each kind, of one zoom level or of all."""
        found = dict.fromkeys(OverlayKind, 0)
        for region in self.regions:
            if zoom in {None, region.tiles.zoom}:
                found[region.kind] += region.count
        return found


@define(kw_only=True)
class FlightOverlays:
    """The use case; it reads every row in the flight's areas."""

    readiness: ReadinessCheck
    refused_tiles: RefusedTiles

    def build(self, flight: Flight, *, quick: bool = True) -> FlightOverlay:
        """Return the overlay of a flight; unless ``quick``, every tile is read to find damage."""
        verdict = self.readiness.check_flight(flight, quick=quick)
        _ = verdict.verdict  # judged before refused tiles are taken out of the holes
        regions: list[OverlayRegion] = []
        for report, item in zip(verdict.reports, flight.areas, strict=True):
            refused = self.refused_tiles.query_refused(
                report.coverage, source=report.source, sector=item.area.sector_class
            )
            holes = [one.tile_id for one in refused if report.marks.fill_hole(one.tile_id)]
            regions += _build_regions(OverlayKind.REFUSED, holes)
            regions += _list_flaws(report)
        regions += self._find_captured(flight.flight_id)
        order = list(OverlayKind)
        regions.sort(key=lambda one: (order.index(one.kind), one.tiles.zoom))
        return FlightOverlay(verdict=verdict, regions=regions)

    def _find_captured(self, flight_id: str) -> Iterator[OverlayRegion]:
        captured: dict[OverlayKind, list[TileId]] = {}
        for tile in self.readiness.tile_metadata_store.query_by_bbox(
            _WORLD, ALL_ZOOMS, source=build_capture_source(flight_id)
        ):
            is_given_up = tile.voting_status is VotingStatus.UPLOAD_GIVEUP
            kind = OverlayKind.GIVEN_UP if is_given_up else OverlayKind.CAPTURED
            captured.setdefault(kind, []).append(tile.tile_id)
        for kind, tiles in captured.items():
            yield from _build_regions(kind, tiles)


def _list_flaws(report: ReadinessReport) -> Iterator[OverlayRegion]:
    for patch in report.iter_patches():
        kind = OverlayKind(patch.flaw.value)
        yield OverlayRegion(kind=kind, tiles=patch.tiles, count=patch.flawed)


def _build_regions(kind: OverlayKind, tiles: Iterable[TileId]) -> Iterator[OverlayRegion]:
    for region in find_tile_regions(tiles, limit=PATCHES_MAX):
        yield OverlayRegion(kind=kind, tiles=region.tiles, count=region.count)
