"""Partitions, looked at: one of them, a list, or those that nothing tries again."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from tileferry.application.control.inspection import InspectedPartition
from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
from tileferry.entrypoints.cli.options.partitions import Asked
from tileferry.entrypoints.cli.output import notes, opened_books, people, print_json
from tileferry.entrypoints.cli.views.audit_replay import replay_json
from tileferry.entrypoints.cli.views.partition_story import why_partition
from tileferry.entrypoints.cli.views.records import moment_json, partition_json, record_json
from tileferry.entrypoints.cli.views.run_story import why_run
from tileferry.entrypoints.cli.views.state import (
    inspected_view,
    partition_lines,
    terminal_lines,
)
from tileferry.entrypoints.cli.views.work import audit_lines, story_lines
from tileferry.entrypoints.container import Container

INSPECT_SCHEMA = "tileferry.state.inspect.v1"
LIST_SCHEMA = "tileferry.state.list.v1"
TERMINAL_SCHEMA = "tileferry.state.terminal.v1"


def inspected(
    config: Path | None,
    asked: Asked,
    *,
    statuses: Sequence[str],
    why: bool,
    limit: int,
    after: str | None,
    json: bool,
) -> None:
    """Show the one that is named; or list those that are meant."""
    with opened_books(config) as container:
        key = asked.key(container.config().source)
        if key is None:
            if why:
                raise typer.BadParameter("--why explains one partition; name it")
            wanted = asked.filter(*map(PartitionStatus, statuses), after=after)
            _list(container, wanted, limit, json=json)
        elif statuses or after is not None:
            raise typer.BadParameter("--status and --after are for lists, not for one partition")
        else:
            _inspect(container, key, why=why, json=json)


def terminal(
    config: Path | None, asked: Asked, *, limit: int, after: str | None, json: bool
) -> None:
    """List the failures that nothing tries again."""
    with opened_books(config) as container:
        inspection = container.inspection()
        now = container.work_reader().now()
        failed = container.work_reader().find_partitions(
            asked.filter(PartitionStatus.FAILED, after=after)
        )
        judged = ((one, inspection.terminal(one, now)) for one in failed)
        found = [*islice(((one, why) for one, why in judged if why is not None), limit + 1)]
    shown, more = found[:limit], len(found) > limit
    keys = [one for one, _ in shown]
    if json:
        listed = [{**partition_json(one), "terminal_reason": why} for one, why in shown]
        print_json(TERMINAL_SCHEMA, {"partitions": listed, "next": _next(keys, more=more)})
        return
    if not shown:
        people.print("No partition was given up.")
        return
    for one, why in shown:
        people.print(terminal_lines(one, why))
    _note_more(keys, more=more)


def _inspect(container: Container, key: PartitionKey, *, why: bool, json: bool) -> None:
    found = container.inspection().partition(key)
    if found is None:
        raise InvalidValueError(
            field="PARTITION",
            value=str(key),
            problem="is not known",
            remedy="tileferry state inspect lists those that are; backfill plan brings new ones",
        )
    story: list[str] = []
    entries = []
    if why:
        story = _story(container, found)
        entries = list(container.audit_reader().about(found.partition.subject))
    if json:
        body = _inspected_json(found)
        if why:
            body |= {"why": story, "audit": replay_json(entries)}
        print_json(INSPECT_SCHEMA, body)
        return
    people.print(inspected_view(found))
    if why:
        people.print(story_lines(story))
        if entries:
            people.print("\nThe audit log:")
            people.print(audit_lines(entries), soft_wrap=True)


def _story(container: Container, found: InspectedPartition) -> list[str]:
    policies = container.work_policies()
    story = why_partition(found, policies)
    if found.partition.active_run_id is not None:
        newest = found.newest
        story.append(f"Of run {newest.run.run_id}:")
        story += why_run(newest, container.inspection().source(newest.run.source), policies)
    return story


def _inspected_json(found: InspectedPartition) -> dict[str, Any]:
    planned = found.planned
    return {
        **partition_json(found.partition),
        "terminal_reason": found.terminal,
        "next_run_at": None if planned is None else moment_json(planned.next_run_at),
        "backoff_strategy": None if planned is None else planned.backoff_strategy,
        "has_raw_partition": found.has_raw,
        "verdicts": [record_json(verdict) for verdict in found.verdicts],
        "newest_run": {
            **record_json(found.newest.run),
            "attempts": [record_json(attempt) for attempt in found.newest.attempts],
        },
    }


def _list(container: Container, wanted: PartitionFilter, limit: int, *, json: bool) -> None:
    found = list(islice(container.work_reader().find_partitions(wanted), limit + 1))
    shown, more = found[:limit], len(found) > limit
    if json:
        body = {"partitions": [*map(partition_json, shown)], "next": _next(shown, more=more)}
        print_json(LIST_SCHEMA, body)
        return
    if not shown:
        everything = wanted == PartitionFilter()
        people.print(f"There is no {'' if everything else 'such '}partition.")
        return
    for one in shown:
        people.print(partition_lines(one))
    _note_more(shown, more=more)


def _next(shown: Sequence[Partition], *, more: bool) -> str | None:
    return str(shown[-1].key) if more else None


def _note_more(shown: Sequence[Partition], *, more: bool) -> None:
    if more:
        notes.print(f"There are more: add --after {shown[-1].key}")
