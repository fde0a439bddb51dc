"""Every page, in the order of the navigation."""

from collections.abc import Sequence

from tileferry.entrypoints.web import (
    flights,
    giveups,
    health,
    map,  # noqa: A004  # named after the page
    partitions,
    runs,
    wmts,
)
from tileferry.entrypoints.web.site import Page

PAGES: Sequence[Page] = (
    map.PAGE,
    flights.PAGE,
    runs.PAGE,
    partitions.PAGE,
    giveups.PAGE,
    health.PAGE,
    wmts.PAGE,
)
