"""The operator's word on partitions: to try them again, or not to try them any more."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import typer
from attrs import frozen

from tileferry.application.control.partition_control import Override, PartitionControl
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import (
    BACKFILL_PARTITIONS_MAX,
    Partition,
    PartitionKey,
    PartitionStatus,
    check_confirmed,
)
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.cli.options.overriding import override_of
from tileferry.entrypoints.cli.options.partitions import Asked
from tileferry.entrypoints.cli.output import opened_books, print_json
from tileferry.entrypoints.cli.views.records import partition_json
from tileferry.entrypoints.cli.views.state import print_touched
from tileferry.entrypoints.container import Container

_Act = Callable[[PartitionControl, Sequence[PartitionKey], Override], Sequence[Partition]]


@frozen(kw_only=True)
class _Overriding:
    """What one of the verbs does."""

    schema: str
    what: str
    """As the question says it."""
    done: str
    act: _Act
    takes_marked: bool
    """Whether failures that an operator has marked belong to a range."""


_VERBS: Mapping[str, _Overriding] = {
    "retry": _Overriding(
        schema="tileferry.state.retry.v1",
        what="try again",
        done="retried",
        act=PartitionControl.retry,
        takes_marked=True,
    ),
    "mark-terminal": _Overriding(
        schema="tileferry.state.mark_terminal.v1",
        what="give up",
        done="marked",
        act=PartitionControl.mark_terminal,
        takes_marked=False,
    ),
}


def overridden(
    verb: str,
    config: Path | None,
    asked: Asked,
    *,
    reason: str,
    confirm: int | None,
    json: bool,
) -> None:
    """Have the operator's word done on the partitions that are meant."""
    doing = _VERBS[verb]
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
    wanted = asked.filter(PartitionStatus.FAILED)

    def failed() -> list[PartitionKey]:
        found = container.work_reader().find_partitions(wanted)
        keys = (one.key for one in found if takes_marked or one.terminal_marker is None)
        return list(islice(keys, BACKFILL_PARTITIONS_MAX + 1))

    taken = container.control_calls()(RetryCategory.APPROVAL_CHECK, "Count partitions", failed)
    if len(taken) > BACKFILL_PARTITIONS_MAX:
        raise InvalidValueError(
            field="--to",
            value=asked.last,
            problem=f"makes more than {BACKFILL_PARTITIONS_MAX} partitions",
            remedy="give several ranges, one after the other",
        )
    return taken
