"""Which imagery a partition gets, for sources with and without dates."""

from datetime import date, timedelta

import pytest

from tileferry.domain.errors import UndatedImageryError
from tileferry.domain.partitions.imagery_dates import ImageryDates

TODAY = date(2026, 3, 10)
YESTERDAY = TODAY - timedelta(days=1)
PLAIN = ImageryDates(source="xyz-tiles", is_dated=False)


def test_dated_source_is_asked_for_the_logical_date() -> None:
    imagery = ImageryDates(source="satellite")
    for day in (YESTERDAY, TODAY):
        assert imagery.select(day, today=TODAY) == day


def test_plain_server_is_refused_for_past_dates() -> None:
    assert PLAIN.select(TODAY, today=TODAY) is None
    with pytest.raises(UndatedImageryError) as caught:
        PLAIN.select(YESTERDAY, today=TODAY)
    assert str(caught.value) == (
        "source xyz-tiles serves only its current imagery, not that of 2026-03-09; use a source"
        " with dated imagery, or set partitions.allow_undated"
    )


def test_plain_server_serves_past_dates_if_that_is_allowed() -> None:
    imagery = ImageryDates(source="xyz-tiles", is_dated=False, allow_undated=True)
    assert imagery.select(YESTERDAY, today=TODAY) is None


def test_only_dates_of_the_configured_source_are_checked() -> None:
    PLAIN.check("elsewhere", [YESTERDAY], today=TODAY)
    PLAIN.check("xyz-tiles", [TODAY], today=TODAY)
    with pytest.raises(UndatedImageryError):
        PLAIN.check("xyz-tiles", [TODAY, YESTERDAY], today=TODAY)
