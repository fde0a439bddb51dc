"""How the sources of the queue stand."""

from datetime import datetime
from pathlib import Path

from rich.console import Group
from rich.text import Text

from tileferry.application.control.inspection import InspectedSource
from tileferry.domain.runs import SourceGate
from tileferry.entrypoints.cli.output import opened_books, people, print_json
from tileferry.entrypoints.cli.views.records import moment_json, record_json
from tileferry.entrypoints.cli.views.times import when
from tileferry.entrypoints.cli.views.work import block

SCHEMA = "tileferry.queue.gates.v1"


def gates(config: Path | None, *, json: bool) -> None:
    """Show of each source its gate, its tokens for retries, and what waits."""
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
    for one in sources:
        people.print(_lines(one, now))


def _lines(one: InspectedSource, now: datetime) -> Group:
    load = one.load
    waiting = f"{load.waiting:,} waiting"
    if load.next_retry_at is not None:
        waiting += f", the next due {when(load.next_retry_at, now)}"
    counts = f"{load.ready:,} ready, {load.under_way:,} under way, {waiting}"
    head = Text(one.gate.source, "bold")
    return block(head, [_stands(one.gate, now), counts, f"{one.tokens:.0f} tokens for retries"])


def _stands(gate: SourceGate, now: datetime) -> str:
    if gate.closed_until is None or gate.is_open(now):
        return "open"
    return f"closed until {when(gate.closed_until, now)}"


def _json_of(one: InspectedSource, *, is_open: bool) -> dict[str, object]:
    return {
        **record_json(one.gate),
        "open": is_open,
        "tokens": round(one.tokens, 3),
        **record_json(one.load),
    }
