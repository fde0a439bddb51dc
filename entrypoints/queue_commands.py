"""``tileferry queue``: how the sources of the queue stand."""

from datetime import datetime

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tileferry.application.inspection import InspectedSource
from tileferry.domain.runs import SourceGate
from tileferry.entrypoints.output import ConfigFile, JsonFlag, opened_books, people, print_json
from tileferry.entrypoints.record_json import moment_json, record_json
from tileferry.entrypoints.times import in_utc, when

SCHEMA = "tileferry.queue.gates.v1"
app = typer.Typer(help="The queue of runs, source by source.", no_args_is_help=True)


@app.callback()
def _queue() -> None:
    """Show how the sources of the queue stand."""


@app.command("gates", epilog="Example: tileferry queue gates")
def gates_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show each source: whether its runs may start, its tokens for retries, and what waits.

    A source that answers "too many requests" closes its gate for all of its runs; waiting there
    costs them nothing. Tokens are what retries are paid from: they come back by themselves.
    """
    with opened_books(config) as container:
        now = container.work_reader().now()
        sources = container.inspection().sources()
    if json:
        listed = [_json_of(one, is_open=one.gate.is_open(now)) for one in sources]
        print_json(SCHEMA, {"now": moment_json(now), "sources": listed})
        return
    if not sources:
        people.print("No run was ever submitted.")
        return
    table = Table(box=box.SIMPLE)
    table.add_column("source", overflow="fold")
    table.add_column("gate", overflow="fold")
    for title in ("tokens", "ready", "waiting", "under way"):
        table.add_column(title, justify="right")
    table.add_column("next retry (UTC)", overflow="fold")
    for one in sources:
        load = one.load
        table.add_row(
            Text(one.gate.source),
            _stands(one.gate, now),
            f"{one.tokens:.0f}",
            f"{load.ready:,}",
            f"{load.waiting:,}",
            f"{load.under_way:,}",
            "" if load.next_retry_at is None else in_utc(load.next_retry_at),
        )
    people.print(table)


def _stands(gate: SourceGate, now: datetime) -> Text:
    if gate.closed_until is None or gate.is_open(now):
        return Text("open")
    return Text(f"closed until {when(gate.closed_until, now)}", "yellow")


def _json_of(one: InspectedSource, *, is_open: bool) -> dict[str, object]:
    return {
        **record_json(one.gate),
        "open": is_open,
        "tokens": round(one.tokens, 3),
        **record_json(one.load),
    }
