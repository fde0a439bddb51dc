"""Which partitions a command is about: one by its key, or those that a filter takes."""

from datetime import date
from typing import overload

import typer
from attrs import define

from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.checks import is_name
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import PartitionKey, PartitionStatus
from tileferry.entrypoints.cli.options.times import day_of
from tileferry.entrypoints.cli.output import option


@define(kw_only=True)
class Asked:
    """What the options of a command say about partitions."""

    partition: str | None = None
    source: str | None = None
    customer_id: str | None = None
    query: str | None = None
    date: str | None = None
    first: str | None = None
    last: str | None = None

    def key(self, own_source: str) -> PartitionKey | None:
        """Return the one partition that is meant, if one is; the source may be left out."""
        named = [self.source, self.customer_id, self.query, self.date]
        span = [self.first, self.last]
        if self.partition is not None:
            if any(value is not None for value in (*named, *span)):
                raise typer.BadParameter("give a partition either as PARTITION or by options")
            with option("PARTITION"):
                return PartitionKey.parse(self.partition)
        if self.date is None:
            return None
        if any(value is not None for value in span):
            raise typer.BadParameter("give either --date or a range with --from and --to")
        if self.customer_id is None or self.query is None:
            raise typer.BadParameter("--date names a partition with --customer-id and --query")
        self._check_names()
        return PartitionKey(
            source=self.source or own_source,
            customer_id=self.customer_id,
            query_name=self.query,
            logical_date=day_of(self.date, option="--date"),
        )

    def filter(self, *statuses: PartitionStatus, after: str | None = None) -> PartitionFilter:
        """Return what takes the partitions that are meant."""
        self._check_names()
        first, last = days_of(self.first, self.last)
        with option("--after"):
            beyond = None if after is None else PartitionKey.parse(after)
        return PartitionFilter(
            source=self.source,
            customer_id=self.customer_id,
            query_name=self.query,
            first=first,
            last=last,
            statuses=statuses,
            after=beyond,
        )

    def _check_names(self) -> None:
        check_name(self.source, "--source")
        check_name(self.customer_id, "--customer-id")
        check_name(self.query, "--query")


@overload
def days_of(first: str, last: str) -> tuple[date, date]: ...


@overload
def days_of(first: str | None, last: str | None) -> tuple[date | None, date | None]: ...


def days_of(first: str | None, last: str | None) -> tuple[date | None, date | None]:
    """Read the two ends of a range, as far as they were given."""
    begin = None if first is None else day_of(first, option="--from")
    end = None if last is None else day_of(last, option="--to")
    if begin is not None and end is not None and begin > end:
        raise InvalidValueError(field="--from", value=first, problem=f"is after --to, {end}")
    return begin, end


def check_name(value: str | None, given_as: str) -> None:
    """Refuse what no source, customer, query or run can be called."""
    if value is not None and not is_name(value):
        raise InvalidValueError(field=given_as, value=value, problem="is not a plain name")
