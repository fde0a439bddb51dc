"""The areas of a command: ``--bbox``, ``--area`` and ``--route``, each any number of times."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from attrs import evolve, frozen

from tileferry.adapters.geodata.area_files import parse_area, read_area, read_corridor
from tileferry.domain.errors import FarAreaError, InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    Place,
    SectorClass,
    TileCoverage,
)
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.tile_id import normalize_zooms
from tileferry.entrypoints.cli.output import blame_option, stderr
from tileferry.entrypoints.cli.parsing import parse_distance
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.config import CONFIG_FILE, Config
from tileferry.entrypoints.config.origins import find_existing_files

if TYPE_CHECKING:
    from tileferry.entrypoints.installation import Installation

_ZOOM_RANGE = re.compile(r" *(\d{1,2})(?: *- *(\d{1,2}))? *", re.ASCII)


@frozen(kw_only=True)
class AreaInput:
    """The options that select areas, as they were given."""

    bboxes: Sequence[str] | None = None
    areas: Sequence[str] | None = None
    routes: Sequence[Path] | None = None
    buffer: str | None = None
    detail: str | None = None

    @property
    def is_given(self) -> bool:
        return bool(self.bboxes or self.areas or self.routes)


@frozen
class NamedArea:
    """The tiles of an area, with the name or file that stands for it on the command line."""

    coverage: TileCoverage
    name: str | None = None

    def __str__(self) -> str:
        box = self.coverage.bbox
        if self.coverage.shape is not None:
            return f"{self.name}: shape in {box.in_words}; {self.coverage.count:,} tiles"
        return box.in_words if self.name is None else f"{self.name}: {box} ({box.in_words})"


def parse_areas(
    config: Config,
    given: AreaInput,
    zoom: str | None,
    *,
    default_zooms: Sequence[int] | None = None,
) -> list[NamedArea]:
    """Return the areas of all options, without duplicates.

    ``default_zooms`` are those of areas without ``--zoom``; ``None``: it is required.
    """
    if not given.is_given:
        raise typer.BadParameter("give an area with --bbox, --area or --route")
    _check_route_options(given)
    places: list[tuple[Place, str | None]] = [
        (_parse_bbox(text), None) for text in given.bboxes or ()
    ]
    places += ((_find_area(config, area), area) for area in given.areas or ())
    if given.buffer is not None:
        buffer_m = parse_distance(given.buffer, option="--buffer")
        places += (_read_route(path, buffer_m) for path in given.routes or ())
    detailed = parse_detail(given.detail)
    levels = default_zooms if zoom is None else parse_zooms(zoom)
    if places and levels is None:
        raise typer.BadParameter("an area needs zoom levels; add --zoom")
    if not places and zoom is not None:
        raise typer.BadParameter(
            "--zoom needs --buffer, --bbox or --area; --detail sets its own zoom levels"
        )
    with blame_option("--zoom"):
        found = [
            NamedArea(TileCoverage.from_place(place, levels or ()), name) for place, name in places
        ]
    with blame_option("--detail"):
        for zooms, distance_m in detailed:
            for path in given.routes or ():
                place, name = _read_route(path, distance_m)
                found.append(NamedArea(TileCoverage.from_place(place, zooms), name))
    return list({item.coverage: item for item in found}.values())


def _check_route_options(given: AreaInput) -> None:
    if given.routes and given.buffer is None and given.detail is None:
        raise typer.BadParameter("a route needs a distance; add --buffer or --detail")
    if not given.routes and (given.buffer is not None or given.detail is not None):
        raise typer.BadParameter("--buffer and --detail need --route")


def parse_coverages(config: Config, given: AreaInput, zoom: str | None) -> list[TileCoverage]:
    """Return the tiles that the options select, one coverage per area."""
    return [item.coverage for item in parse_areas(config, given, zoom)]


def parse_one_coverage(config: Config, given: AreaInput, zoom: str | None) -> TileCoverage:
    """Return the tiles of the only area; several are refused."""
    found = parse_coverages(config, given, zoom)
    if len(found) > 1:
        raise typer.BadParameter("give one area only")
    return found[0]


def parse_detail(text: str | None) -> list[tuple[tuple[int, ...], float]]:
    """Return zoom levels with the distance from the route up to which they are needed."""
    found = []
    for part in () if text is None else text.split(","):
        zoom, colon, distance = part.partition(":")
        if not colon:
            raise InvalidValueError(
                field="--detail",
                value=text,
                problem="is not a list of zoom levels with distances",
                remedy="use levels and distances such as 18:200m,16:2km",
            )
        levels = parse_zooms(zoom, option="--detail")
        found.append((levels, parse_distance(distance, option="--detail")))
    return found


def parse_zooms(text: str, *, option: str = "--zoom") -> tuple[int, ...]:
    """Return zoom levels in ascending order, without duplicates."""
    levels: list[int] = []
    for part in text.split(","):
        match = _ZOOM_RANGE.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise InvalidValueError(
                field=option,
                value=text,
                problem="is not a list of zoom levels",
                remedy="use levels such as 15,16 or a range such as 14-16",
            )
        levels += range(int(match[1]), int(match[2] or match[1]) + 1)
    with blame_option(option):
        return normalize_zooms(levels)


def build_download_requests(
    config: Config, coverages: Sequence[TileCoverage], flight: str, sector: SectorClass
) -> list[DownloadRequest]:
    """Return one request per area, into the configured cache."""
    with blame_option("--zoom"):
        areas = [Area.from_coverage(one, sector) for one in coverages]
    with blame_option("--flight"):
        return [
            DownloadRequest(flight_id=flight, area=area, cache_root=config.c11.cache_root)
            for area in areas
        ]


def parse_drawn_area(text: str, *, name: str) -> Place:
    """Return an area in one of the text formats of ``--area``."""
    return parse_area(text.encode("utf-8", "replace"), name=name)


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


def _find_area(config: Config, area: str) -> Place:
    known = config.areas.get(area)
    if known is not None:
        return BBox.parse(known)
    try:
        return read_area(Path(area))
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


def _read_route(path: Path, buffer_m: float) -> tuple[Place, str]:
    try:
        return read_corridor(path, buffer_m=buffer_m), f"{path}, {buffer_m:g} m around it"
    except InvalidValueError:
        raise
    except (OSError, ValueError) as error:  # a path with a NUL raises ValueError
        raise InvalidValueError(
            field="--route",
            value=str(path),
            problem=f"is not a readable file: {getattr(error, 'strerror', None) or error}",
        ) from None
