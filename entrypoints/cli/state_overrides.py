"""``state retry`` and ``state mark-terminal``: an operator overrides the retry policy."""

from typing import TYPE_CHECKING

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tileferry.application.ports.work import PartitionFilter, WorkReader
    from tileferry.domain.partitions import PartitionKey
    from tileferry.entrypoints.cli.partition_options import PartitionOptions
    from tileferry.entrypoints.installation import Installation

RETRY_SCHEMA = "tileferry.state.retry.v1"
MARK_SCHEMA = "tileferry.state.mark_terminal.v1"


def add_override_commands(app: typer.Typer) -> None:
    """Add both commands to the group."""
    app.command(
        "retry",
        epilog=format_examples(
            "tileferry state retry satellite/acme/roads/2026-03-01 --reason 'the link is back'",
            "tileferry state retry --customer-id acme --query roads --from 2026-03-01"
            " --to 2026-03-31 --reason 'the link is back' --confirm-count 27",
        ),
    )(retry_command)
    app.command(
        "mark-terminal",
        epilog=format_examples(
            "tileferry state mark-terminal satellite/acme/roads/2026-03-01"
            " --reason 'no imagery for that day'",
            "tileferry state mark-terminal --customer-id acme --from 2026-03-01 --to 2026-03-07"
            " --reason 'no imagery for that week'",
        ),
    )(mark_terminal_command)


def retry_command(
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
    """Retry one partition, or the failed ones of a range.

    Each gets a new run; all of them or none. Naming a successful partition reprocesses it; its data
    stays readable. A partition whose newest run left no raw partition is refused: use backfill
    instead.

    Exit codes: 0 done, or nothing in the range has failed; 4 refused.
    """
    from tileferry.domain.partitions import check_confirmation
    from tileferry.entrypoints.cli.formatting import partition_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json
    from tileferry.entrypoints.cli.partition_options import PartitionOptions, build_override
    from tileferry.entrypoints.cli.work_lines import print_changed

    options = PartitionOptions(
        partition=partition,
        source=source,
        customer_id=customer_id,
        query=query,
        date=date,
        first=first,
        last=last,
    )
    with open_installation(config) as installation:
        control = installation.partition_control
        keys = _find_partitions(installation, options, control.list_retryable)
        override = build_override(len(keys), what="retry", reason=reason, confirm=confirm_count)
        check_confirmation(len(keys), override.confirmed)  # also when the range is empty
        retried = control.retry(keys, override) if keys else []
    if json:
        body = {"retried": len(retried), "partitions": [*map(partition_to_json, retried)]}
        print_json(RETRY_SCHEMA, body)
    else:
        print_changed(retried, "retried")


def mark_terminal_command(
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
    """Exclude failed partitions from automatic retries.

    Marks one partition, or all failed partitions of a range; those already marked keep their
    reason. `state retry` removes the mark.

    Exit codes: 0 done, or nothing in the range has failed; 4 refused.
    """
    from tileferry.domain.partitions import check_confirmation
    from tileferry.entrypoints.cli.formatting import partition_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json
    from tileferry.entrypoints.cli.partition_options import PartitionOptions, build_override
    from tileferry.entrypoints.cli.work_lines import print_changed

    options = PartitionOptions(
        partition=partition,
        source=source,
        customer_id=customer_id,
        query=query,
        date=date,
        first=first,
        last=last,
    )
    with open_installation(config) as installation:
        control = installation.partition_control
        keys = _find_partitions(installation, options, control.list_markable)
        override = build_override(
            len(keys), what="mark as terminal", reason=reason, confirm=confirm_count
        )
        check_confirmation(len(keys), override.confirmed)  # also when the range is empty
        marked = control.mark_terminal(keys, override) if keys else []
    if json:
        body = {"marked": len(marked), "partitions": [*map(partition_to_json, marked)]}
        print_json(MARK_SCHEMA, body)
    else:
        print_changed(marked, "marked")


def _find_partitions(
    installation: "Installation",
    options: "PartitionOptions",
    select: "Callable[[WorkReader, PartitionFilter], Sequence[PartitionKey]]",
) -> "Sequence[PartitionKey]":
    """Return the named partition, or those of a range that ``select`` accepts."""
    from tileferry.entrypoints.cli.output import blame_option

    key = options.to_key(installation.config.source)
    if key is not None:
        return [key]
    if options.first is None or options.last is None:
        raise typer.BadParameter("name a partition, or a range with --from and --to")
    among = options.to_filter()
    with blame_option("--to"):
        return select(installation.work_reader, among)
