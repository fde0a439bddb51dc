"""Which area a command is about: a box, a name from the configuration, or a GeoJSON file."""

import re
from pathlib import Path

import typer
from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    SectorClass,
    TileCoverage,
    parse_geojson_bbox,
)
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.geojson import GEOJSON_BYTES_MAX
from tileferry.domain.tiles.tile_id import normalize_zooms
from tileferry.entrypoints.cli.output import blame_option
from tileferry.entrypoints.config import CONFIG_FILE, Config

_ZOOM_RANGE = re.compile(r" *(\d{1,2})(?: *- *(\d{1,2}))? *", re.ASCII)


def parse_zooms(text: str) -> tuple[int, ...]:
    """Read zoom levels, in ascending order, each once."""
    levels: list[int] = []
    for part in text.split(","):
        match = _ZOOM_RANGE.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise InvalidValueError(
                field="--zoom",
                value=text,
                problem="is not a list of zoom levels",
                remedy="give levels such as 15,16 or from-to such as 14-16",
            )
        levels += range(int(match[1]), int(match[2] or match[1]) + 1)
    with blame_option("--zoom"):
        return normalize_zooms(levels)


def parse_coverage(config: Config, bbox: str | None, area: str | None, zoom: str) -> TileCoverage:
    """Return the tiles that the options ask for."""
    box = parse_area_box(config, bbox, area)
    levels = parse_zooms(zoom)
    with blame_option("--zoom"):
        return TileCoverage(bbox=box, zoom_levels=levels)


def parse_area_box(config: Config, bbox: str | None, area: str | None) -> BBox:
    """Return the box that one of the two options gives."""
    if (bbox is None) == (area is None):
        raise typer.BadParameter("give the area either as --bbox or as --area")
    return _find_area(config, area or "") if bbox is None else _parse_bbox(bbox)


def build_download_request(
    config: Config, coverage: TileCoverage, flight: str, sector: SectorClass
) -> DownloadRequest:
    """Return the request to have an area in the configured cache."""
    with blame_option("--zoom"):
        area = Area(bbox=coverage.bbox, zoom_levels=coverage.zoom_levels, sector_class=sector)
    with blame_option("--flight"):
        return DownloadRequest(flight_id=flight, area=area, cache_root=config.c11.cache_root)


def _parse_bbox(text: str) -> BBox:
    """Read a box; a refusal names the edge that is wrong, if it is one."""
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
        with Path(area).open("rb") as file:
            content = file.read(GEOJSON_BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        names = ", ".join(sorted(config.areas)) or "none yet"
        if not (config.areas or Path(CONFIG_FILE).exists()):
            names += f"; there is no {CONFIG_FILE} in this folder"
        raise InvalidValueError(
            field="--area",
            value=area,
            problem="is neither a name in [tileferry.areas] nor a file that can be read: "
            f"{getattr(error, 'strerror', None) or error}",
            remedy=f"names are: {names}",
        ) from None
    return parse_geojson_bbox(content, field=Path(area).name)
