"""Judging an area of the container's cache: is it ready for a flight?"""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from attrs import frozen

from tileferry.adapters.postgres import schema_status
from tileferry.application.cache.readiness import FlightReadiness, ReadinessReport
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import FlightStandard, SectorClass, TileCoverage
from tileferry.domain.tiles.tile_set import check_area_size
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import locked

_DAY = timedelta(days=1)


@frozen(kw_only=True)
class Question:
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


def readiness_of(
    container: Container, question: Question, on_tile: Callable[[], None] = lambda: None
) -> ReadinessReport:
    """Judge; whoever reads the tiles holds the cache meanwhile."""
    schema_status(container.database()).check()
    standard = FlightStandard(
        sector=question.sector,
        now=question.now,
        flown_at=question.flown_at,
        holes_max=question.holes_max,
        freshness=container.metadata_store().freshness,
        resolution=container.download_settings().gate,
    )
    use_case = FlightReadiness(tile_metadata_store=container.metadata_store())
    if question.quick:
        return use_case.report(question.coverage, standard, source=question.source, on_tile=on_tile)
    with locked(container):  # a writer at work would look like damage
        use_case.check_bytes = container.tile_store().problem_of
        return use_case.report(question.coverage, standard, source=question.source, on_tile=on_tile)


def end_of(day: date, now: datetime, *, field: str) -> datetime:
    """Return the end of a day in UTC: what is fresh then was fresh all day."""
    end = datetime.combine(day, time.max, UTC)
    if end < now - _DAY:  # the day before may still be today, west of Greenwich
        raise InvalidValueError(
            field=field,
            value=day.isoformat(),
            problem="is over",
            remedy="judge for today or a day to come",
        )
    return max(end, now)
