"""The retries of the past, under another policy."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tileferry.application.audit_reading import ReadEntry
from tileferry.domain.audit import AuditEvent, CallCollector
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import WhatIf
from tileferry.entrypoints.cli.options.times import since_of
from tileferry.entrypoints.cli.output import option, people, print_json, reading_audit
from tileferry.entrypoints.cli.progress.reading import showing
from tileferry.entrypoints.cli.views.policies import what_if_view
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import POLICY_FIELDS, NamedPolicy, policy_named
from tileferry.entrypoints.config.retries import changed


def simulated(
    config: Path | None,
    *,
    category: str,
    changes: Mapping[str, float | None],
    since: str,
    json: bool,
) -> None:
    """Replay what the log has of a category, and show what would have changed."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise InvalidValueError(
            field="policy simulate",
            value="no change",
            problem="needs something to change about the policy",
            remedy="give one option at least, such as --max-attempts 5; --help lists them",
        )
    settings = load_config(config)
    with option("--category"):
        chosen = _of_calls(policy_named(settings, category))
    other = changed(chosen.policy, given, "")
    result, collector = WhatIf(other), CallCollector()
    with reading_audit(config) as (container, reader), showing(reader) as counting:
        begin = since_of(since, now=datetime.fromtimestamp(container.clock().now(), UTC))
        for event in _events_of(
            chosen, counting.since(begin, holding=[chosen.category.value]), begin
        ):
            call = collector.add(event)
            if call is not None:
                result.add(call)
    if json:
        body = _what_if_json(chosen, result, collector)
        print_json("tileferry.policy.simulate.v1", body)
    else:
        people.print(what_if_view(chosen.name, chosen.policy, result, collector))


def _of_calls(chosen: NamedPolicy) -> NamedPolicy:
    if chosen.operations is None:
        raise InvalidValueError(
            field="--category",
            value=chosen.name,
            problem="is no policy of calls, so the log has none to replay",
            remedy=f"see its waits with tileferry policy explain --category {chosen.name}",
        )
    return chosen


def _events_of(
    chosen: NamedPolicy, entries: Iterable[ReadEntry], begin: datetime | None
) -> Iterator[AuditEvent]:
    for read in entries:
        event = read.event
        if event is None or not chosen.tells_of(event):
            continue
        if begin is None or event.timestamp >= begin:
            yield event


def _what_if_json(chosen: NamedPolicy, result: WhatIf, collector: CallCollector) -> dict[str, Any]:
    return {
        "category": chosen.name,
        "policy": {name: getattr(result.policy, name) for name in POLICY_FIELDS},
        "calls": result.calls,
        "succeeded": result.succeeded,
        "would_succeed": result.still_succeed,
        "would_be_lost": result.lost,
        "given_up": result.given_up,
        "would_be_given_up": result.still_given_up,
        "unknown": result.unknown,
        "waited_s": result.waited_s,
        "would_wait_s": result.would_wait_s,
        "unfinished": collector.unfinished,
        "incomplete": collector.incomplete,
    }
