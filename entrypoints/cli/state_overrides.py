"""``state retry`` and ``state mark-terminal``: the operator's word on partitions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer
from attrs import frozen

from tileferry.application.control.partition_control import OperatorOverride, PartitionControl
from tileferry.application.ports.work import PartitionFilter, WorkReader
from tileferry.domain.partitions import Partition, PartitionKey, check_confirmation
from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.formatting import partition_to_json
from tileferry.entrypoints.cli.option_types import (
    ConfirmOption,
    DateOption,
    OptionalCustomer,
    OptionalFrom,
    OptionalQuery,
    OptionalTo,
    PartitionArgument,
    ReasonOption,
    SourceOption,
)
from tileferry.entrypoints.cli.output import blame_option, open_checked, print_json
from tileferry.entrypoints.cli.partition_options import PartitionOptions, build_override
from tileferry.entrypoints.cli.work_lines import print_changed
from tileferry.entrypoints.container import Container

_RETRY_HELP = """Give a partition a new run, or all failed ones of a range.

It is all of them, or none. A success that is named is reprocessed; what there is stays readable. A
partition whose newest run left no raw partition is refused: use backfill for it.

Exit codes: 0 done, also when nothing in the range has failed; 4 refused.
"""
_RETRY_EXAMPLES = format_examples(
    "tileferry state retry satellite/acme/roads/2026-03-01 --reason 'the link is back'",
    "tileferry state retry --customer-id acme --query roads --from 2026-03-01 --to 2026-03-31"
    " --reason 'the link is back' --confirm-count 27",
)
_MARK_HELP = """Rule out further automatic tries of failed partitions.

It is the one that is named, or all failed ones of a range; those that are marked already keep their
reason. A later state retry takes the mark back.

Exit codes: 0 done, also when nothing in the range has failed; 4 refused.
"""
_MARK_EXAMPLES = format_examples(
    "tileferry state mark-terminal satellite/acme/roads/2026-03-01"
    " --reason 'there are no pictures of that day'",
    "tileferry state mark-terminal --customer-id acme --from 2026-03-01 --to 2026-03-07"
    " --reason 'there are no pictures of that week'",
)


def add_override_commands(app: typer.Typer) -> None:
    """Give the group its two commands."""
    app.command("retry", help=_RETRY_HELP, epilog=_RETRY_EXAMPLES)(_build_command("retry"))
    app.command("mark-terminal", help=_MARK_HELP, epilog=_MARK_EXAMPLES)(
        _build_command("mark-terminal")
    )


def _build_command(verb: str) -> Callable[..., None]:
    """Return the command that has an operator's word done; both are asked for in the same way."""

    def command(
        *,
        partition: PartitionArgument = None,
        source: SourceOption = None,
        customer_id: OptionalCustomer = None,
        query: OptionalQuery = None,
        date: DateOption = None,
        first: OptionalFrom = None,
        last: OptionalTo = None,
        reason: ReasonOption,
        confirm_count: ConfirmOption = None,
        config: ConfigFile = None,
        json: JsonFlag = False,
    ) -> None:
        from tileferry.entrypoints.cli import state_overrides
        from tileferry.entrypoints.cli.partition_options import PartitionOptions

        asked = PartitionOptions(
            partition=partition,
            source=source,
            customer_id=customer_id,
            query=query,
            date=date,
            first=first,
            last=last,
        )
        state_overrides.override_partitions(
            verb, config, asked, reason=reason, confirm=confirm_count, json=json
        )

    return command


_Action = Callable[
    [PartitionControl, Sequence[PartitionKey], OperatorOverride], Sequence[Partition]
]
_Selector = Callable[[PartitionControl, WorkReader, PartitionFilter], Sequence[PartitionKey]]


@frozen(kw_only=True)
class _OverrideVerb:
    """What one of the verbs does."""

    schema: str
    what: str
    """As the question says it."""
    done: str
    act: _Action
    meant: _Selector
    """Which partitions of a range."""


_VERBS: Mapping[str, _OverrideVerb] = {
    "retry": _OverrideVerb(
        schema="tileferry.state.retry.v1",
        what="try again",
        done="retried",
        act=PartitionControl.retry,
        meant=PartitionControl.list_retryable,
    ),
    "mark-terminal": _OverrideVerb(
        schema="tileferry.state.mark_terminal.v1",
        what="give up",
        done="marked",
        act=PartitionControl.mark_terminal,
        meant=PartitionControl.list_markable,
    ),
}


def override_partitions(
    verb: str,
    config: Path | None,
    asked: PartitionOptions,
    *,
    reason: str,
    confirm: int | None,
    json: bool,
) -> None:
    """Have the operator's word done on the partitions that are meant."""
    doing = _VERBS[verb]
    with open_checked(config) as container:
        keys = _find_partitions(container, asked, doing)
        override = build_override(len(keys), what=doing.what, reason=reason, confirm=confirm)
        check_confirmation(len(keys), override.confirmed)  # also when there is nothing to do
        touched = doing.act(container.partition_control(), keys, override) if keys else []
    if json:
        body = {doing.done: len(touched), "partitions": [*map(partition_to_json, touched)]}
        print_json(doing.schema, body)
    else:
        print_changed(touched, doing.done)


def _find_partitions(
    container: Container, asked: PartitionOptions, doing: _OverrideVerb
) -> Sequence[PartitionKey]:
    """Return the partition that is named, or the failed ones of a range."""
    key = asked.to_key(container.config().source)
    if key is not None:
        return [key]
    if asked.first is None or asked.last is None:
        raise typer.BadParameter("name a partition, or give a range with --from and --to")
    among = asked.to_filter()
    with blame_option("--to"):
        return doing.meant(container.partition_control(), container.work_reader(), among)
