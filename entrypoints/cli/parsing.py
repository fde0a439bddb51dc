"""Parses option values: areas, zoom levels, times, durations and rates."""

import re
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import typer
from attrs import evolve

from tileferry.domain.audit import AlertThresholds
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
from tileferry.domain.validation import DURATION_MAX, parse_date, parse_datetime
from tileferry.entrypoints.cli.output import blame_option
from tileferry.entrypoints.config import CONFIG_FILE, Config
from tileferry.entrypoints.config.origins import find_existing_files

# areas

_ZOOM_RANGE = re.compile(r" *(\d{1,2})(?: *- *(\d{1,2}))? *", re.ASCII)


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


def parse_coverage(config: Config, bbox: str | None, area: str | None, zoom: str) -> TileCoverage:
    """Return the tiles that the options select."""
    box = parse_area_box(config, bbox, area)
    levels = parse_zooms(zoom)
    with blame_option("--zoom"):
        return TileCoverage(bbox=box, zoom_levels=levels)


def parse_area_box(config: Config, bbox: str | None, area: str | None) -> BBox:
    """Return the bounding box of either option."""
    if (bbox is None) == (area is None):
        raise typer.BadParameter("give the area as either --bbox or --area")
    return _find_area(config, area or "") if bbox is None else _parse_bbox(bbox)


def build_download_request(
    config: Config, coverage: TileCoverage, flight: str, sector: SectorClass
) -> DownloadRequest:
    """Return a request to download an area into the configured cache."""
    with blame_option("--zoom"):
        area = Area(bbox=coverage.bbox, zoom_levels=coverage.zoom_levels, sector_class=sector)
    with blame_option("--flight"):
        return DownloadRequest(flight_id=flight, area=area, cache_root=config.c11.cache_root)


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
        with Path(area).open("rb") as file:
            content = file.read(GEOJSON_BYTES_MAX + 1)
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
    return parse_geojson_bbox(content, field=Path(area).name)


# times and durations

_DURATION_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])")


_ALL = "all"


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def parse_since(text: str, *, now: datetime) -> datetime | None:
    """Return the start of a time range: ``24h`` ago, a given time, or ``None`` for ``all``."""
    asked = text.strip().lower()
    if asked == _ALL:
        return None
    match = _DURATION.fullmatch(asked)
    if match:
        seconds = float(match[1]) * _DURATION_UNITS[match[2]]
        return now - timedelta(seconds=min(seconds, DURATION_MAX.total_seconds()))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _build_since_error(text, "is neither a duration nor a time")
    if moment < _EARLIEST:
        raise _build_since_error(text, "is before 1970")
    if moment > now:
        raise _build_since_error(text, "is in the future")
    return moment


def _build_since_error(text: str, problem: str) -> InvalidValueError:
    return InvalidValueError(
        field="--since",
        value=text,
        problem=problem,
        remedy="use 90s, 15m, 24h, 7d or 2w, all, or a time with a time zone such as"
        " 2026-11-16T08:00:00Z",
    )


def parse_day(text: str, *, option: str) -> date:
    day = parse_date(text)
    if day is None:
        raise InvalidValueError(
            field=option,
            value=text,
            problem="is not a date",
            remedy="use year, month and day, such as 2024-01-31",
        )
    return day


def parse_day_or_time(text: str, *, option: str) -> datetime:
    """Parse a date, which means its start, or a time with a time zone."""
    day = parse_date(text)
    if day is not None:
        return datetime.combine(day, time.min, UTC)
    try:
        return parse_datetime(text, field=option)
    except InvalidValueError as error:
        remedy = "use 2026-11-01, or a time with a time zone such as 2026-11-01T12:00:00Z"
        raise evolve(error, remedy=remedy) from None


# rates

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) *([kMG]?)B?(?:/s)?")


_RATE_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def parse_rate(text: str) -> float:
    """Return the bytes per second of ``--rate``, such as ``2.5M``."""
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) * _RATE_UNITS[match[2]] if match else 0.0
    if rate <= 0:
        raise InvalidValueError(
            field="--rate",
            value=text,
            problem="is not a rate in bytes per second",
            remedy="use a number such as 500k, 2M or 2.5M",
        )
    return rate


def parse_alert_rate(text: str) -> AlertThresholds:
    """Return the limit for all categories of ``--alert-rate``, such as ``10/min``."""
    try:
        rate = float(text.strip().lower().removesuffix("/min"))
        return AlertThresholds(retries_per_minute=rate)
    except (ValueError, InvalidValueError):
        raise InvalidValueError(
            field="--alert-rate",
            value=text,
            problem="is not a rate",
            remedy="use retries per minute, such as 10/min",
        ) from None
