"""``state retry`` and ``state mark-terminal``: the operator's word on partitions."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import typer
from attrs import frozen

from tileferry.application.partition_control import Override, PartitionControl
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    BACKFILL_PARTITIONS_MAX,
    Partition,
    PartitionKey,
    PartitionStatus,
    check_confirmed,
)
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.options.overriding import ConfirmOption, ReasonOption, override_of
from tileferry.entrypoints.cli.options.partitions import (
    Asked,
    CustomerOption,
    DateOption,
    FromOption,
    KeyArgument,
    QueryOption,
    SourceOption,
    ToOption,
)
from tileferry.entrypoints.cli.output import opened_books, print_json
from tileferry.entrypoints.cli.views.records import partition_json
from tileferry.entrypoints.cli.views.state import print_touched
from tileferry.entrypoints.container import Container

_RETRY_EXAMPLE = (
    "Example: tileferry state retry satellite/acme/roads/2024-01-31 --reason 'link is back'"
)
_MARK_EXAMPLE = (
    "Example: tileferry state mark-terminal --customer-id acme --from 2024-01-01 --to 2024-01-07"
    " --reason 'the source has no data of that week'"
)
_RETRY_HELP = """Give a partition a new run, or all failed ones of a range: all of them, or none.

A success that is named is reprocessed; what there is stays readable. A partition whose newest
run left no raw partition is refused: use backfill for it.

Exit codes: 0 done, also when nothing in the range has failed; 4 refused.
"""
_MARK_HELP = """Rule out further automatic tries of a failed partition, or of all of a range.

Of a range, those that are marked already keep their reason. A later state retry takes the mark
back. Exit codes: 0 done, also when nothing in the range has failed; 4 refused.
"""
_Act = Callable[[PartitionControl, Sequence[PartitionKey], Override], Sequence[Partition]]


@frozen(kw_only=True)
class _Overriding:
    """What one of the two commands does."""

    schema: str
    what: str
    """As the question says it."""
    done: str
    act: _Act
    takes_marked: bool
    """Whether failures that an operator has marked belong to a range."""


_RETRY = _Overriding(
    schema="tileferry.state.retry.v1",
    what="try again",
    done="retried",
    act=PartitionControl.retry,
    takes_marked=True,
)
_MARK = _Overriding(
    schema="tileferry.state.mark_terminal.v1",
    what="give up",
    done="marked",
    act=PartitionControl.mark_terminal,
    takes_marked=False,
)


def _command(doing: _Overriding) -> Callable[..., None]:
    """Return the command that has an operator's word done; both are asked for in the same way."""

    def command(
        *,
        partition: KeyArgument = None,
        source: SourceOption = None,
        customer_id: CustomerOption = None,
        query: QueryOption = None,
        date: DateOption = None,
        first: FromOption = None,
        last: ToOption = None,
        reason: ReasonOption,
        confirm_count: ConfirmOption = None,
        config: ConfigFile = None,
        json: JsonFlag = False,
    ) -> None:
        asked = Asked(
            partition=partition,
            source=source,
            customer_id=customer_id,
            query=query,
            date=date,
            first=first,
            last=last,
        )
        _override(doing, asked, reason, confirm_count, config, json=json)

    return command


def add_overrides(app: typer.Typer) -> None:
    """Give the group its two commands."""
    app.command("retry", help=_RETRY_HELP, epilog=_RETRY_EXAMPLE)(_command(_RETRY))
    app.command("mark-terminal", help=_MARK_HELP, epilog=_MARK_EXAMPLE)(_command(_MARK))


def _override(
    doing: _Overriding,
    asked: Asked,
    reason: str,
    confirm: int | None,
    config: Path | None,
    *,
    json: bool,
) -> None:
    with opened_books(config) as container:
        keys = _meant(container, asked, takes_marked=doing.takes_marked)
        override = override_of(len(keys), what=doing.what, reason=reason, confirm=confirm)
        check_confirmed(len(keys), override.confirmed)  # also when there is nothing to do
        touched = doing.act(container.partition_control(), keys, override) if keys else []
    if json:
        body = {doing.done: len(touched), "partitions": [*map(partition_json, touched)]}
        print_json(doing.schema, body)
    else:
        print_touched(touched, doing.done)


def _meant(container: Container, asked: Asked, *, takes_marked: bool) -> list[PartitionKey]:
    """Return the partition that is named, or the failed ones of a range."""
    key = asked.key(container.config().c11.source)
    if key is not None:
        return [key]
    if asked.first is None or asked.last is None:
        raise typer.BadParameter("name a partition, or give a range with --from and --to")
    found = container.work_reader().find_partitions(asked.filter(PartitionStatus.FAILED))
    keys = (one.key for one in found if takes_marked or one.terminal_marker is None)
    taken = list(islice(keys, BACKFILL_PARTITIONS_MAX + 1))
    if len(taken) > BACKFILL_PARTITIONS_MAX:
        raise InvalidValueError(
            field="--to",
            value=asked.last,
            problem=f"makes more than {BACKFILL_PARTITIONS_MAX} partitions",
            remedy="give several ranges, one after the other",
        )
    return taken
