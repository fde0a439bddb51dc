"""Converts arguments of embedding programs from convenient forms to domain values."""

from collections.abc import Sequence
from pathlib import Path

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, SectorClass
from tileferry.domain.tiles.selection import FetchMode

BBoxLike = BBox | str
SectorLike = SectorClass | str


def to_bbox(bbox: BBoxLike) -> BBox:
    """Return a bounding box; text has the form ``W,S,E,N``."""
    return BBox.parse(bbox) if isinstance(bbox, str) else bbox


def to_boxes(bboxes: BBoxLike | Sequence[BBoxLike]) -> list[BBox]:
    """Return one bounding box or several as a list."""
    given = [bboxes] if isinstance(bboxes, BBox | str) else bboxes
    return [to_bbox(bbox) for bbox in given]


def to_sector(sector: SectorLike) -> SectorClass:
    """Return a sector class; text is its name."""
    try:
        return SectorClass(sector)
    except ValueError:
        raise InvalidValueError(
            field="sector",
            value=sector,
            problem="is not a sector class",
            remedy=f"use one of {', '.join(SectorClass)}",
        ) from None


def select_fetch_mode(**flags: bool) -> FetchMode:
    """Return the mode whose flag is set, by its name; at most one may be set."""
    modes = [FetchMode(name) for name, is_set in flags.items() if is_set]
    if len(modes) > 1:
        raise InvalidValueError(
            field=" and ".join(modes), value=True, problem="exclude each other", remedy="use one"
        )
    return modes[0] if modes else FetchMode.MISSING


def check_one_landing_source(record: Path | None, *, on_ground: bool) -> None:
    """Reject a flight record combined with ``on_ground``: only one may confirm the landing."""
    if not isinstance(on_ground, bool):  # any text is truthy, even "no"
        raise InvalidValueError(field="on_ground", value=on_ground, problem="must be True or False")
    if on_ground and record is not None:
        raise InvalidValueError(
            field="flight_record",
            value=str(record),
            problem="cannot be combined with on_ground",
            remedy="use one of the two",
        )
