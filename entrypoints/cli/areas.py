"""The areas of a command: ``--bbox`` and ``--area``, each any number of times, with ``--zoom``."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from attrs import evolve, frozen

from tileferry.adapters.geodata.area_files import parse_area, read_area
from tileferry.domain.errors import FarAreaError, InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    SectorClass,
    TileCoverage,
)
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.tile_id import normalize_zooms
from tileferry.entrypoints.cli.output import blame_option, stderr
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.config import CONFIG_FILE, Config
from tileferry.entrypoints.config.origins import find_existing_files

if TYPE_CHECKING:
    from tileferry.entrypoints.installation import Installation

_ZOOM_RANGE = re.compile(r" *(\d{1,2})(?: *- *(\d{1,2}))? *", re.ASCII)


@frozen
class NamedBox:
    """A box, with the name or file that stands for it on the command line."""

    box: BBox
    name: str | None = None

    def __str__(self) -> str:
        words = self.box.in_words
        return words if self.name is None else f"{self.name}: {self.box} ({words})"


def parse_boxes(
    config: Config, bboxes: Sequence[str] | None, areas: Sequence[str] | None
) -> list[NamedBox]:
    """Return the boxes of all options, without duplicates."""
    if not (bboxes or areas):
        raise typer.BadParameter("give an area as --bbox or --area")
    found = [NamedBox(_parse_bbox(text)) for text in bboxes or ()]
    found += [NamedBox(_find_area(config, area), area) for area in areas or ()]
    return list({item.box: item for item in found}.values())


def parse_coverages(
    config: Config, bboxes: Sequence[str] | None, areas: Sequence[str] | None, zoom: str
) -> list[TileCoverage]:
    """Return the tiles that the options select, one coverage per area."""
    boxes = parse_boxes(config, bboxes, areas)
    levels = parse_zooms(zoom)
    with blame_option("--zoom"):
        return [TileCoverage(bbox=item.box, zoom_levels=levels) for item in boxes]


def parse_one_coverage(
    config: Config, bboxes: Sequence[str] | None, areas: Sequence[str] | None, zoom: str
) -> TileCoverage:
    """Return the tiles of the only area; several are refused."""
    found = parse_coverages(config, bboxes, areas, zoom)
    if len(found) > 1:
        raise typer.BadParameter("give one area only")
    return found[0]


def parse_zooms(text: str) -> tuple[int, ...]:
    """Return zoom levels in ascending order, without duplicates."""
    levels: list[int] = []
    for part in text.split(","):
        match = _ZOOM_RANGE.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise InvalidValueError(
                field="--zoom",
                value=text,
                problem="is not a list of zoom levels",
                remedy="use levels such as 15,16 or a range such as 14-16",
            )
        levels += range(int(match[1]), int(match[2] or match[1]) + 1)
    with blame_option("--zoom"):
        return normalize_zooms(levels)


def build_download_requests(
    config: Config, coverages: Sequence[TileCoverage], flight: str, sector: SectorClass
) -> list[DownloadRequest]:
    """Return one request per area, into the configured cache."""
    with blame_option("--zoom"):
        areas = [
            Area(bbox=one.bbox, zoom_levels=one.zoom_levels, sector_class=sector)
            for one in coverages
        ]
    with blame_option("--flight"):
        return [
            DownloadRequest(flight_id=flight, area=area, cache_root=config.c11.cache_root)
            for area in areas
        ]


def parse_drawn_area(text: str, *, name: str) -> BBox:
    """Return the box around an area in one of the text formats of ``--area``."""
    place = parse_area(text.encode("utf-8", "replace"), name=name)
    return place if isinstance(place, BBox) else place.bbox


def confirm_distances(
    installation: "Installation", requests: Sequence[DownloadRequest], *, far: bool
) -> None:
    """Raise if an area is far from the flight's others, unless ``far`` or the terminal confirms."""
    if far:
        return
    try:
        installation.flights.check_distances(
            requests[0].flight_id, [request.bbox for request in requests]
        )
    except FarAreaError as error:
        if not sys.stdin.isatty():
            raise
        stderr.print(f"tileferry: {describe_error(error)}")
        stderr.print("Is the area right? Type yes to continue: ", end="")
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise


def _parse_bbox(text: str) -> BBox:
    """Parse a bounding box; an error names the invalid edge, if there is one."""
    try:
        return BBox.parse(text)
    except InvalidValueError as error:
        edge = error.field.partition(".")[2]
        raise evolve(error, field=f"--bbox {edge}".rstrip()) from None


def _find_area(config: Config, area: str) -> BBox:
    known = config.areas.get(area)
    if known is not None:
        return BBox.parse(known)
    try:
        place = read_area(Path(area))
    except InvalidValueError:
        raise
    except (OSError, ValueError) as error:  # a path with a NUL raises ValueError
        names = ", ".join(sorted(config.areas)) or "none"
        if not (config.areas or find_existing_files()):
            names += f"; there is no {CONFIG_FILE} in this folder"
        raise InvalidValueError(
            field="--area",
            value=area,
            problem="is neither a name in [tileferry.areas] nor a readable file: "
            f"{getattr(error, 'strerror', None) or error}",
            remedy=f"known names: {names}",
        ) from None
    return place if isinstance(place, BBox) else place.bbox
