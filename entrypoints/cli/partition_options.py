"""Options that select partitions, by key or by filter, and the operator's override of them."""

import getpass
import os
import socket
import sys
from datetime import date
from typing import TYPE_CHECKING, overload

import typer
from attrs import define

from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import LARGE_RANGE, PartitionKey, PartitionStatus
from tileferry.domain.text import printable
from tileferry.domain.validation import is_unicode
from tileferry.entrypoints.cli.output import blame_option, stderr
from tileferry.entrypoints.cli.parsing import check_name, parse_day

if TYPE_CHECKING:
    from tileferry.application.control.partition_control import OperatorOverride


@define(kw_only=True)
class PartitionOptions:
    """The options of a command that select partitions."""

    partition: str | None = None
    source: str | None = None
    customer_id: str | None = None
    query: str | None = None
    date: str | None = None
    first: str | None = None
    last: str | None = None

    def to_key(self, own_source: str) -> PartitionKey | None:
        """Return the key if the options name one partition; the source defaults to ours."""
        named = [self.source, self.customer_id, self.query, self.date]
        span = [self.first, self.last]
        if self.partition is not None:
            if any(value is not None for value in (*named, *span)):
                raise typer.BadParameter("name the partition as either PARTITION or options")
            with blame_option("PARTITION"):
                return PartitionKey.parse(self.partition)
        if self.date is None:
            return None
        if any(value is not None for value in span):
            raise typer.BadParameter("give either --date or a range with --from and --to")
        if self.customer_id is None or self.query is None:
            raise typer.BadParameter("--date needs --customer-id and --query as well")
        self._check_names()
        return PartitionKey(
            source=self.source or own_source,
            customer_id=self.customer_id,
            query_name=self.query,
            logical_date=parse_day(self.date, option="--date"),
        )

    def to_filter(self, *statuses: PartitionStatus, after: str | None = None) -> PartitionFilter:
        """Return a filter for the selected partitions."""
        self._check_names()
        first, last = parse_days(self.first, self.last)
        with blame_option("--after"):
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
def parse_days(first: str, last: str) -> tuple[date, date]: ...


@overload
def parse_days(first: str | None, last: str | None) -> tuple[date | None, date | None]: ...


def parse_days(first: str | None, last: str | None) -> tuple[date | None, date | None]:
    """Return the ends of a date range; either may be ``None``."""
    begin = None if first is None else parse_day(first, option="--from")
    end = None if last is None else parse_day(last, option="--to")
    if begin is not None and end is not None and begin > end:
        raise InvalidValueError(field="--from", value=first, problem=f"is after --to, {end}")
    return begin, end


def get_operator_name() -> str:
    """Return the current user as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        user = f"uid-{os.getuid()}"
    return printable(f"{user}@{socket.gethostname()}")


def parse_reason(reason: str) -> str:
    """Return the stripped reason; raise if it is blank or not valid Unicode."""
    if not (reason.strip() and is_unicode(reason)):
        raise InvalidValueError(
            field="--reason",
            value=reason,
            problem="must be non-empty Unicode text",
            remedy="say why; the audit log keeps it",
        )
    return reason.strip()


def build_override(
    count: int, *, what: str, reason: str, confirm: int | None
) -> "OperatorOverride":
    """Return the operator's override for an action on ``count`` partitions.

    A terminal prompts for the number of a large range; the number is checked later.
    """
    confirm = ask_confirmation(count, what, "partitions", confirm)
    from tileferry.application.control.partition_control import OperatorOverride

    return OperatorOverride(by=get_operator_name(), reason=parse_reason(reason), confirmed=confirm)


def ask_confirmation(count: int, verb: str, nouns: str, confirm: int | None) -> int | None:
    """Return the confirmed count: as given, or typed at a terminal if the count is large."""
    if confirm is None and count >= LARGE_RANGE and sys.stdin.isatty():
        return _ask_count(f"This will {verb} {count:,} {nouns}. Type the count to continue: ")
    return confirm


def _ask_count(question: str) -> int | None:
    stderr.print(question, end="")
    answer = sys.stdin.readline().strip()
    return int(answer) if answer.isascii() and answer.isdecimal() else None
