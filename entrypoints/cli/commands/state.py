"""``tileferry state``: what is known of partitions, and the operator's word on them."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.commands.state_overrides import add_overrides
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import (
    AfterOption,
    DateOption,
    LimitOption,
    OptionalCustomer,
    OptionalFrom,
    OptionalQuery,
    OptionalTo,
    PartitionArgument,
    PartitionStatusOption,
    SourceOption,
)

app = group("Partitions: what is known of each, and your word on the ones that failed.")


@app.command(
    "inspect",
    epilog=examples(
        "tileferry state inspect satellite/acme/roads/2026-03-01 --why",
        "tileferry state inspect --customer-id acme --query roads --date 2026-03-01 --json",
        "tileferry state inspect --customer-id acme --from 2026-03-01 --to 2026-03-31"
        " --status failed",
    ),
)
def inspect_command(
    *,
    partition: PartitionArgument = None,
    source: SourceOption = None,
    customer_id: OptionalCustomer = None,
    query: OptionalQuery = None,
    date: DateOption = None,
    first: OptionalFrom = None,
    last: OptionalTo = None,
    status: PartitionStatusOption = None,
    why: Annotated[
        bool, typer.Option("--why", help="Say in words why it is so, and what comes next.")
    ] = False,
    limit: LimitOption = 100,
    after: AfterOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show one partition and its newest run, or list many.

    One is named as PARTITION, or by --customer-id, --query and --date (and --source, which is
    c11.source by default). Without a date, those that the options take are listed.
    """
    from tileferry.entrypoints.cli.options.partitions import Asked
    from tileferry.entrypoints.cli.running import state

    asked = Asked(
        partition=partition,
        source=source,
        customer_id=customer_id,
        query=query,
        date=date,
        first=first,
        last=last,
    )
    state.inspected(
        config, asked, statuses=status or (), why=why, limit=limit, after=after, json=json
    )


@app.command("terminal", epilog=examples("tileferry state terminal --customer-id acme"))
def terminal_command(
    *,
    source: SourceOption = None,
    customer_id: OptionalCustomer = None,
    query: OptionalQuery = None,
    first: OptionalFrom = None,
    last: OptionalTo = None,
    limit: LimitOption = 100,
    after: AfterOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List failures that nothing tries again by itself, and why.

    Their attempts are used up, they are too old, an operator has marked them, or they were
    abandoned: their newest run was given up before it could be judged.
    """
    from tileferry.entrypoints.cli.options.partitions import Asked
    from tileferry.entrypoints.cli.running import state

    asked = Asked(source=source, customer_id=customer_id, query=query, first=first, last=last)
    state.terminal(config, asked, limit=limit, after=after, json=json)


add_overrides(app)
