"""What a program gives, in the forms that are handy there."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tileferry.adapters.filesystem import FlightRecordFile, OperatorsWord
from tileferry.application.ports.uploads import FlightRecords
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, SectorClass, TileCoverage
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX
from tileferry.domain.tiles.tile_id import ZOOM_MAX

Box = BBox | str
Sector = SectorClass | str
_WORLD = BBox(west=-LON_MAX, south=-LAT_MAX, east=LON_MAX, north=LAT_MAX)


def box_of(bbox: Box) -> BBox:
    """Return a box that may be written as ``W,S,E,N``."""
    return BBox.parse(bbox) if isinstance(bbox, str) else bbox


def sector_of(sector: Sector) -> SectorClass:
    """Return a sector that may be given by its name."""
    try:
        return SectorClass(sector)
    except ValueError:
        raise InvalidValueError(
            field="sector",
            value=sector,
            problem="is no sector class",
            remedy=f"use one of {', '.join(SectorClass)}",
        ) from None


def coverage_or_all(bbox: Box | None, zoom_levels: Sequence[int] | None) -> TileCoverage:
    """Return an area; without a box the whole world, without levels all of them."""
    return TileCoverage(
        bbox=_WORLD if bbox is None else box_of(bbox),
        zoom_levels=range(ZOOM_MAX + 1) if zoom_levels is None else zoom_levels,
    )


def records_of(flight: str, record: Path | None, *, on_ground: bool) -> FlightRecords | None:
    """Return who says that the aircraft has landed; ``None`` is whom the configuration names."""
    if on_ground and record is not None:
        raise InvalidValueError(
            field="flight_record",
            value=str(record),
            problem="and on_ground are two answers to one question",
            remedy="give one of them",
        )
    if on_ground:
        return OperatorsWord(flight_id=flight, said_at=datetime.now(UTC))
    return None if record is None else FlightRecordFile(path=record)
