"""``tileferry state``: inspect partitions; retry or retire failed ones."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import (
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
from tileferry.entrypoints.cli.state_overrides import add_override_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.application.control.queries import PartitionDetails
    from tileferry.application.ports.work import PartitionFilter
    from tileferry.domain.partitions import Partition, PartitionKey
    from tileferry.entrypoints.installation import Installation

app = declare_group("Inspect partitions; retry or retire failed ones.")
INSPECT_SCHEMA = "tileferry.state.inspect.v1"
LIST_SCHEMA = "tileferry.state.list.v1"
TERMINAL_SCHEMA = "tileferry.state.terminal.v1"


@app.command(
    "inspect",
    epilog=format_examples(
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
        bool, typer.Option("--why", help="Explain its state, and what happens next.")
    ] = False,
    limit: LimitOption = 100,
    after: AfterOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show one partition and its newest run, or list partitions.

    Name one as PARTITION, or by --customer-id, --query and --date (and --source; default:
    c11.source). Without a date, lists the partitions that match the options.
    """
    from tileferry.domain.partitions import PartitionStatus
    from tileferry.entrypoints.cli.output import open_installation
    from tileferry.entrypoints.cli.partition_options import PartitionOptions

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
        key = options.to_key(installation.config.source)
        if key is None:
            if why:
                raise typer.BadParameter("--why needs a single partition; name it")
            wanted = options.to_filter(*map(PartitionStatus, status or ()), after=after)
            _list_partitions(installation, wanted, limit, json=json)
        elif status or after is not None:
            raise typer.BadParameter(
                "--status and --after apply to lists, not to a single partition"
            )
        else:
            _show_partition(installation, key, why=why, json=json)


def _list_partitions(
    installation: "Installation", wanted: "PartitionFilter", limit: int, *, json: bool
) -> None:
    from tileferry.application.ports.work import PartitionFilter
    from tileferry.entrypoints.cli.formatting import partition_to_json
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.cli.work_lines import format_partition

    found = list(islice(installation.work_reader.find_partitions(wanted), limit + 1))
    shown, more = found[:limit], len(found) > limit
    if json:
        body = {
            "partitions": [*map(partition_to_json, shown)],
            "next": _get_next_key(shown, more=more),
        }
        print_json(LIST_SCHEMA, body)
        return
    if not shown:
        everything = wanted == PartitionFilter()
        stdout.print("No partitions yet." if everything else "No partition matches.")
        return
    for one in shown:
        stdout.print(format_partition(one))
    _hint_more(shown, more=more)


def _show_partition(
    installation: "Installation", key: "PartitionKey", *, why: bool, json: bool
) -> None:
    from tileferry.domain.errors import NotFoundError, Remedy
    from tileferry.entrypoints.cli.audit_entries import replay_to_json
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.cli.work_lines import (
        format_sentences,
        render_audit_entries,
        render_partition,
    )

    found = installation.inspector.find_partition(key)
    if found is None:
        raise NotFoundError(what="partition", name=str(key), remedy=Remedy.LIST_PARTITIONS)
    story: list[str] = []
    entries = []
    if why:
        story = collect_explanation(installation, found)
        entries = list(installation.audit_reader.find_about(found.partition.subject))
    if json:
        body = _inspection_to_json(found)
        if why:
            body |= {"why": story, "audit": replay_to_json(entries)}
        print_json(INSPECT_SCHEMA, body)
        return
    stdout.print(render_partition(found))
    if why:
        stdout.print(format_sentences(story))
        if entries:
            stdout.print("\nAudit log:")
            stdout.print(render_audit_entries(entries), soft_wrap=True)


def collect_explanation(installation: "Installation", found: "PartitionDetails") -> list[str]:
    """Return why a partition, and its active run, are in their state."""
    from tileferry.entrypoints.cli.explanations import explain_partition, explain_run

    policies = installation.work_policies
    story = explain_partition(found, policies)
    if found.partition.active_run_id is not None:
        newest = found.newest
        story.append(f"Run {newest.run.run_id}:")
        story += explain_run(newest, installation.inspector.get_source(newest.run.source), policies)
    return story


def _inspection_to_json(found: "PartitionDetails") -> dict[str, Any]:
    from tileferry.entrypoints.cli.formatting import partition_to_json, record_to_json, time_to_json

    planned = found.planned
    return {
        **partition_to_json(found.partition),
        "terminal_reason": found.terminal,
        "next_run_at": None if planned is None else time_to_json(planned.next_run_at),
        "backoff_strategy": None if planned is None else planned.backoff_strategy,
        "has_raw_partition": found.has_raw,
        "verdicts": [record_to_json(verdict) for verdict in found.verdicts],
        "newest_run": {
            **record_to_json(found.newest.run),
            "attempts": [record_to_json(attempt) for attempt in found.newest.attempts],
        },
    }


@app.command("terminal", epilog=format_examples("tileferry state terminal --customer-id acme"))
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
    """List failed partitions that will not be retried.

    Shows why: their attempts are used up, they are too old, an operator marked them terminal, or
    they were abandoned: their newest run was given up before it could be validated.
    """
    from tileferry.entrypoints.cli.formatting import partition_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.partition_options import PartitionOptions
    from tileferry.entrypoints.cli.work_lines import format_terminal

    options = PartitionOptions(
        source=source, customer_id=customer_id, query=query, first=first, last=last
    )
    with open_installation(config) as installation:
        terminal = installation.inspector.iter_terminal(options.to_filter(after=after))
        found = [*islice(terminal, limit + 1)]
    shown, more = found[:limit], len(found) > limit
    partitions = [one for one, _ in shown]
    if json:
        listed = [{**partition_to_json(one), "terminal_reason": why} for one, why in shown]
        body = {"partitions": listed, "next": _get_next_key(partitions, more=more)}
        print_json(TERMINAL_SCHEMA, body)
        return
    if not shown:
        stdout.print("No terminal partitions.")
        return
    for one, why in shown:
        stdout.print(format_terminal(one, why))
    _hint_more(partitions, more=more)


add_override_commands(app)


def _get_next_key(shown: "Sequence[Partition]", *, more: bool) -> str | None:
    return str(shown[-1].key) if more else None


def _hint_more(shown: "Sequence[Partition]", *, more: bool) -> None:
    from tileferry.entrypoints.cli.output import stderr

    if more:
        stderr.print(f"More: add --after {shown[-1].key}")
