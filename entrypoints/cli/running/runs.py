"""Runs, looked at and explained, and what an operator may do about one."""

from collections.abc import Sequence
from pathlib import Path

from tileferry.application.control.inspection import InspectedRun
from tileferry.application.ports.raw_partitions import check_run_id
from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Run, RunId, RunKind, RunStatus
from tileferry.domain.text import in_utc, printable
from tileferry.entrypoints.cli.options.overriding import checked_reason, operator_name
from tileferry.entrypoints.cli.options.partitions import check_name
from tileferry.entrypoints.cli.output import facts, notes, opened_books, option, people, print_json
from tileferry.entrypoints.cli.views.audit_replay import replay_json
from tileferry.entrypoints.cli.views.records import record_json
from tileferry.entrypoints.cli.views.run_story import why_run
from tileferry.entrypoints.cli.views.times import when
from tileferry.entrypoints.cli.views.work import (
    attempt_lines,
    audit_lines,
    next_try,
    run_lines,
    story_lines,
)
from tileferry.entrypoints.container import Container

LIST_SCHEMA = "tileferry.runs.list.v1"
SHOW_SCHEMA = "tileferry.runs.show.v1"
WHY_SCHEMA = "tileferry.runs.why.v1"
CANCEL_SCHEMA = "tileferry.runs.cancel.v1"
RETRY_SCHEMA = "tileferry.runs.retry.v1"


def listed(
    config: Path | None,
    *,
    statuses: Sequence[str],
    kinds: Sequence[str],
    source: str | None,
    limit: int,
    json: bool,
) -> None:
    """List those that are wanted, and count all."""
    check_name(source, "--source")
    wanted = RunFilter(
        statuses=[*map(RunStatus, statuses)], kinds=[*map(RunKind, kinds)], source=source
    )
    with opened_books(config) as container:
        reader = container.work_reader()
        now, counts = reader.now(), reader.counts()
        found = reader.runs(wanted, limit=limit)
    if json:
        known = {one.value: counts.get(one, 0) for one in RunStatus}
        print_json(LIST_SCHEMA, {"counts": known, "runs": [record_json(run) for run in found]})
        return
    for run in found:
        people.print(run_lines(run, now))
    there = [f"{counts[one]:,} {_words(one)}" for one in RunStatus if counts.get(one)]
    if there and limit and not found:
        people.print("No run matches.")
    people.print(f"Of all runs: {', '.join(there)}." if there else "No run was ever submitted.")


def shown(config: Path | None, run: str, *, json: bool) -> None:
    """Show one, with its attempts."""
    with opened_books(config) as container:
        found = _found(container, run)
    if json:
        print_json(SHOW_SCHEMA, _json_of(found))
        return
    people.print(facts(f"Run {found.run.run_id}", _rows(found)))
    people.print(attempt_lines(found.attempts))


def explained(config: Path | None, run: str, *, json: bool) -> None:
    """Tell the story of one, with what the audit log has of it."""
    with opened_books(config) as container:
        found = _found(container, run)
        source = container.inspection().source(found.run.source)
        story = why_run(found, source, container.work_policies())
        entries = list(container.audit_reader().about(found.run.run_id))
    if json:
        body = {"run_id": found.run.run_id, "status": found.run.status, "why": story}
        print_json(WHY_SCHEMA, {**body, "audit": replay_json(entries)})
        return
    people.print(f"Run {found.run.run_id}: {_words(found.run.status)}")
    people.print(story_lines(story))
    if entries:
        people.print("\nThe audit log:")
        people.print(audit_lines(entries), soft_wrap=True)
    else:
        notes.print("The audit log of this database has nothing of it.")


def cancelled(config: Path | None, run: str, *, reason: str, json: bool) -> None:
    """Give up one that waits."""
    why = checked_reason(reason)
    with opened_books(config) as container:
        known = _found(container, run).run
        after = container.run_control().cancel(known.run_id, reason=why, by=operator_name())
    _tell(after, CANCEL_SCHEMA, "is given up", json=json)


def retried(config: Path | None, run: str, *, reason: str, json: bool) -> None:
    """Make one due at once."""
    why = checked_reason(reason)
    with opened_books(config) as container:
        known = _found(container, run).run
        after = container.run_control().retry_now(known.run_id, reason=why, by=operator_name())
    _tell(after, RETRY_SCHEMA, "is due now", json=json)


def _tell(run: Run, schema: str, what: str, *, json: bool) -> None:
    if json:
        print_json(schema, record_json(run))
    else:
        people.print(f"Run {run.run_id} {what}.")


def _found(container: Container, run: str) -> InspectedRun:
    with option("RUN"):
        check_run_id(RunId(run))
        found: InspectedRun = container.inspection().run(RunId(run))
    return found


def _json_of(found: InspectedRun) -> dict[str, object]:
    attempts = [record_json(attempt) for attempt in found.attempts]
    return {**record_json(found.run), "attempts": attempts}


def _rows(found: InspectedRun) -> dict[str, object]:
    run, now = found.run, found.now
    rows: dict[str, object] = {
        "kind": run.kind.value,
        "status": _words(run.status),
        "submitted": in_utc(run.submitted_date),
        "priority": run.priority.name.lower(),
        "retries": run.retry_count,
        "asked to wait": run.rate_limited_count or None,
        "workers lost": run.rescues or None,
        "next retry": None if run.next_retry_at is None else next_try(run.next_retry_at, now),
        "error class": run.error_class,
        "error": None if run.error_message is None else printable(run.error_message, limit=1_000),
        "worker": None if run.lease_owner is None else printable(run.lease_owner),
        "lease": None if run.lease_expires_at is None else when(run.lease_expires_at, now),
        "claims": run.lease_epoch,
        "dedupe key": None if run.dedupe_key is None else printable(run.dedupe_key, limit=1_000),
        **{name: printable(str(value), limit=1_000) for name, value in run.payload.items()},
    }
    return {name: value for name, value in rows.items() if value is not None}


def _words(status: RunStatus) -> str:
    return status.value.replace("_", " ")
