"""Which imagery a partition gets: that of its logical date, if the source has dated imagery."""

from collections.abc import Iterable
from datetime import date

from attrs import field, frozen

from tileferry.domain.errors import UndatedImageryError
from tileferry.domain.validation import instance, name


@frozen(kw_only=True)
class ImageryDates:
    """Whether a source serves imagery by date, and what is done if it does not."""

    source: str = field(validator=name)
    is_dated: bool = field(default=True, validator=instance(bool))
    allow_undated: bool = field(default=False, validator=instance(bool))
    """Whether the current imagery may stand for that of a past date."""

    def select(self, day: date, *, today: date) -> date | None:
        """Return the date to request; ``None`` for the current imagery.

        Raise if the source has no imagery of a past date and its current one is not allowed
        instead: it would be labelled with a date that it does not have.
        """
        if self.is_dated:
            return day
        if day < today and not self.allow_undated:
            raise UndatedImageryError(source=self.source, day=day.isoformat())
        return None

    def check(self, source: str, days: Iterable[date], *, today: date) -> None:
        """Raise if the source cannot serve one of the days; other sources are not judged."""
        if source == self.source:
            for day in days:
                self.select(day, today=today)
