"""The operator's word on partitions: to try them again, or not to try them any more."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer
from attrs import frozen

from tileferry.application.control.partition_control import Override, PartitionControl
from tileferry.application.ports.work import PartitionFilter, WorkReader
from tileferry.domain.partitions import (
    Partition,
    PartitionKey,
    check_confirmed,
)
from tileferry.entrypoints.cli.options.overriding import override_of
from tileferry.entrypoints.cli.options.partitions import Asked
from tileferry.entrypoints.cli.output import opened_books, option, print_json
from tileferry.entrypoints.cli.views.records import partition_json
from tileferry.entrypoints.cli.views.state import print_touched
from tileferry.entrypoints.container import Container

_Act = Callable[[PartitionControl, Sequence[PartitionKey], Override], Sequence[Partition]]
_Meant = Callable[[PartitionControl, WorkReader, PartitionFilter], Sequence[PartitionKey]]


@frozen(kw_only=True)
class _Overriding:
    """What one of the verbs does."""

    schema: str
    what: str
    """As the question says it."""
    done: str
    act: _Act
    meant: _Meant
    """Which partitions of a range."""


_VERBS: Mapping[str, _Overriding] = {
    "retry": _Overriding(
        schema="tileferry.state.retry.v1",
        what="try again",
        done="retried",
        act=PartitionControl.retry,
        meant=PartitionControl.to_retry,
    ),
    "mark-terminal": _Overriding(
        schema="tileferry.state.mark_terminal.v1",
        what="give up",
        done="marked",
        act=PartitionControl.mark_terminal,
        meant=PartitionControl.to_mark,
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
        keys = _meant(container, asked, doing)
        override = override_of(len(keys), what=doing.what, reason=reason, confirm=confirm)
        check_confirmed(len(keys), override.confirmed)  # also when there is nothing to do
        touched = doing.act(container.partition_control(), keys, override) if keys else []
    if json:
        body = {doing.done: len(touched), "partitions": [*map(partition_json, touched)]}
        print_json(doing.schema, body)
    else:
        print_touched(touched, doing.done)


def _meant(container: Container, asked: Asked, doing: _Overriding) -> Sequence[PartitionKey]:
    """Return the partition that is named, or the failed ones of a range."""
    key = asked.key(container.config().source)
    if key is not None:
        return [key]
    if asked.first is None or asked.last is None:
        raise typer.BadParameter("name a partition, or give a range with --from and --to")
    among = asked.filter()
    with option("--to"):
        return doing.meant(container.partition_control(), container.work_reader(), among)
