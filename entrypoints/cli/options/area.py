"""Which area a command is about: a box, a name from the configuration, or a GeoJSON file."""

from pathlib import Path

import typer
from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    SectorClass,
    TileCoverage,
    bbox_of_geojson,
)
from tileferry.domain.tiles.geojson import GEOJSON_BYTES_MAX
from tileferry.entrypoints.cli.options.zooms import zooms_of
from tileferry.entrypoints.cli.output import option
from tileferry.entrypoints.config import CONFIG_FILE, Config


def coverage_of(config: Config, bbox: str | None, area: str | None, zoom: str) -> TileCoverage:
    """Return the tiles that the options ask for."""
    box = box_of(config, bbox, area)
    levels = zooms_of(zoom)
    with option("--zoom"):
        return TileCoverage(bbox=box, zoom_levels=levels)


def box_of(config: Config, bbox: str | None, area: str | None) -> BBox:
    """Return the box that one of the two options gives."""
    if (bbox is None) == (area is None):
        raise typer.BadParameter("give the area either as --bbox or as --area")
    return _named(config, area or "") if bbox is None else _box(bbox)


def request_for(
    config: Config, coverage: TileCoverage, flight: str, sector: SectorClass
) -> DownloadRequest:
    """Return the request to have an area in the configured cache."""
    with option("--flight"):  # the rest has been looked at
        return DownloadRequest(
            flight_id=flight,
            bbox=coverage.bbox,
            zoom_levels=coverage.zoom_levels,
            sector_class=sector,
            cache_root=config.c11.cache_root,
        )


def _box(text: str) -> BBox:
    """Read a box; a refusal names the edge that is wrong, if it is one."""
    try:
        return BBox.parse(text)
    except InvalidValueError as error:
        edge = error.field.partition(".")[2]
        raise evolve(error, field=f"--bbox {edge}".rstrip()) from None


def _named(config: Config, area: str) -> BBox:
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
    return bbox_of_geojson(content, field=Path(area).name)
