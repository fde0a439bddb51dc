"""Every page, in the order of the navigation."""

from collections.abc import Sequence

from tileferry.entrypoints.web import (
    audit,
    flights,
    giveups,
    health,
    map,  # noqa: A004  # named after the page
    partitions,
    policies,
    runs,
    transfers,
    wmts,
)
from tileferry.entrypoints.web.site import Page

PAGES: Sequence[Page] = (
    map.PAGE,
    flights.PAGE,
    transfers.PAGE,
    runs.PAGE,
    partitions.PAGE,
    giveups.PAGE,
    audit.PAGE,
    policies.PAGE,
    health.PAGE,
    wmts.PAGE,
)
