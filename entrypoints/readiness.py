"""Judging an area of the container's cache: is it ready for a flight?"""

from datetime import UTC, date, datetime, time, timedelta

from attrs import frozen

from tileferry.adapters.postgres import get_schema_status
from tileferry.application.cache.readiness import FlightReadiness, ReadinessReport
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import FlightStandard, SectorClass, TileCoverage
from tileferry.domain.tiles.coverage import check_area_size
from tileferry.entrypoints.cache_session import lock_cache
from tileferry.entrypoints.container import Container

_DAY = timedelta(days=1)


@frozen(kw_only=True)
class ReadinessQuery:
    """What is to be judged, and by which measure."""

    coverage: TileCoverage
    sector: SectorClass
    now: datetime
    flown_at: datetime
    source: str
    holes_max: int = 0
    quick: bool = False
    """Go by what is known of the tiles, and read none of them."""

    def __attrs_post_init__(self) -> None:
        check_area_size(self.coverage)


def check_readiness(container: Container, query: ReadinessQuery) -> ReadinessReport:
    """Assess the area; reading the tiles' bytes takes the cache's lock."""
    get_schema_status(container.database()).check()
    standard = FlightStandard(
        sector=query.sector,
        now=query.now,
        flown_at=query.flown_at,
        holes_max=query.holes_max,
        freshness=container.metadata_store().freshness,
        resolution=container.download_settings().gate,
    )
    use_case = FlightReadiness(
        tile_metadata_store=container.metadata_store(), progress=container.listener()
    )
    if query.quick:
        return use_case.assess(query.coverage, standard, source=query.source)
    with lock_cache(container):  # a writer at work would look like damage
        use_case.check_bytes = container.tile_store().find_problem
        return use_case.assess(query.coverage, standard, source=query.source)


def get_end_of_day(day: date, now: datetime, *, field: str) -> datetime:
    """Return the end of a day in UTC: what is fresh then was fresh all day."""
    end = datetime.combine(day, time.max, UTC)
    if end < now - _DAY:  # the day before may still be today, west of Greenwich
        raise InvalidValueError(
            field=field,
            value=day.isoformat(),
            problem="is over",
            remedy="use today or a later day",
        )
    return max(end, now)
