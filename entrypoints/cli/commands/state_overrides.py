"""``state retry`` and ``state mark-terminal``: the operator's word on partitions."""

from collections.abc import Callable

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples
from tileferry.entrypoints.cli.options.declared import (
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

_RETRY_HELP = """Give a partition a new run, or all failed ones of a range.

It is all of them, or none. A success that is named is reprocessed; what there is stays readable. A
partition whose newest run left no raw partition is refused: use backfill for it.

Exit codes: 0 done, also when nothing in the range has failed; 4 refused.
"""
_RETRY_EXAMPLES = examples(
    "tileferry state retry satellite/acme/roads/2026-03-01 --reason 'the link is back'",
    "tileferry state retry --customer-id acme --query roads --from 2026-03-01 --to 2026-03-31"
    " --reason 'the link is back' --confirm-count 27",
)
_MARK_HELP = """Rule out further automatic tries of failed partitions.

It is the one that is named, or all failed ones of a range; those that are marked already keep their
reason. A later state retry takes the mark back.

Exit codes: 0 done, also when nothing in the range has failed; 4 refused.
"""
_MARK_EXAMPLES = examples(
    "tileferry state mark-terminal satellite/acme/roads/2026-03-01"
    " --reason 'there are no pictures of that day'",
    "tileferry state mark-terminal --customer-id acme --from 2026-03-01 --to 2026-03-07"
    " --reason 'there are no pictures of that week'",
)


def add_overrides(app: typer.Typer) -> None:
    """Give the group its two commands."""
    app.command("retry", help=_RETRY_HELP, epilog=_RETRY_EXAMPLES)(_command("retry"))
    app.command("mark-terminal", help=_MARK_HELP, epilog=_MARK_EXAMPLES)(_command("mark-terminal"))


def _command(verb: str) -> Callable[..., None]:
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
        from tileferry.entrypoints.cli.options.partitions import Asked
        from tileferry.entrypoints.cli.running import state_overrides

        asked = Asked(
            partition=partition,
            source=source,
            customer_id=customer_id,
            query=query,
            date=date,
            first=first,
            last=last,
        )
        state_overrides.overridden(
            verb, config, asked, reason=reason, confirm=confirm_count, json=json
        )

    return command
