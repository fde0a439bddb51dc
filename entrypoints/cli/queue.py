"""``tileferry queue``: show the queue by source."""

from datetime import datetime
from typing import TYPE_CHECKING

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)

if TYPE_CHECKING:
    from rich.console import Group

    from tileferry.application.control.queries import SourceDetails
    from tileferry.domain.runs import SourceGate

app = declare_group("Show the queue, by source.")
SCHEMA = "tileferry.queue.gates.v1"


@app.callback()
def _declare_verbs() -> None:
    """Keep ``gates`` a subcommand: typer drops the name of an only command."""


@app.command(
    "gates", epilog=format_examples("tileferry queue gates", "tileferry queue gates --json")
)
def gates_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show each source: whether its runs may start, and what waits.

    A source that answers "too many requests" closes its gate to all of its runs; waiting there
    costs no retries. Each retry takes a token; tokens refill over time.
    """
    from tileferry.entrypoints.cli.formatting import time_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    with open_installation(config) as installation:
        now = installation.work_reader.now()
        sources = installation.inspector.list_sources()
    if json:
        listed = [_source_to_json(one, is_open=one.gate.is_open(now)) for one in sources]
        print_json(SCHEMA, {"now": time_to_json(now), "sources": listed})
        return
    if not sources:
        stdout.print("No runs yet.")
        return
    for one in sources:
        stdout.print(_format_source(one, now))


def _format_source(one: "SourceDetails", now: datetime) -> "Group":
    from rich.text import Text

    from tileferry.entrypoints.cli.formatting import format_relative_time
    from tileferry.entrypoints.cli.work_lines import build_block

    load = one.load
    waiting = f"{load.waiting:,} waiting"
    if load.next_retry_at is not None:
        waiting += f", next due {format_relative_time(load.next_retry_at, now)}"
    counts = f"{load.ready:,} ready, {load.under_way:,} in progress, {waiting}"
    head = Text(one.gate.source, "bold")
    return build_block(
        head, [_describe_gate(one.gate, now), counts, f"{one.tokens:.0f} retry tokens"]
    )


def _describe_gate(gate: "SourceGate", now: datetime) -> str:
    from tileferry.entrypoints.cli.formatting import format_relative_time

    if gate.closed_until is None or gate.is_open(now):
        return "open"
    return f"closed until {format_relative_time(gate.closed_until, now)}"


def _source_to_json(one: "SourceDetails", *, is_open: bool) -> dict[str, object]:
    from tileferry.entrypoints.cli.formatting import record_to_json

    return {
        **record_to_json(one.gate),
        "open": is_open,
        "tokens": round(one.tokens, 3),
        **record_to_json(one.load),
    }
