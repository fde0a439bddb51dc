"""Runs: a live list with filters, and each run; retry and cancel one or many."""

from collections.abc import Mapping, Sequence
from functools import partial

from attrs import evolve
from starlette.responses import Response

from tileferry.application.control.bulk_runs import RunAction
from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Run, RunId, RunKind, RunProgress, RunStatus
from tileferry.entrypoints.cli.audit_entries import format_entry
from tileferry.entrypoints.cli.explanations import explain_run
from tileferry.entrypoints.cli.run_changes import count_runs, describe_effect, describe_result
from tileferry.entrypoints.cli.runs import build_run_facts, find_run, format_status
from tileferry.entrypoints.cli.work_lines import (
    describe_run_state,
    describe_work,
    name_run_state,
)
from tileferry.entrypoints.web.changes import Change, Confirmation, Preview
from tileferry.entrypoints.web.filters import (
    encode_filters,
    format_position,
    read_choice,
    read_name,
    read_position,
    read_text,
)
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute

_PATH = "/runs"
_ROWS_MAX = 50
_SEARCHED_MAX = 100_000
"""The newest runs that are searched for a text; a million would take a second."""
_BULK_MAX = 500
"""Maximum runs of one bulk action; so many take some seconds."""
_PREVIEWED_MAX = 100
_AUDIT_MAX = 50
_FILTERS = ("status", "kind", "source", "text")
_COLOURS = {
    RunStatus.DISCOVERED: "skipped",
    RunStatus.PROCESSING: "active",
    RunStatus.PASSED: "ok",
    RunStatus.NEEDS_REVIEW: "warning",
    RunStatus.FAILED: "failed",
    RunStatus.ERROR: "warning",
}


def show_runs(request: PageRequest) -> Response:
    view = _build_list(request)
    return request.render(
        "runs.html",
        {
            "title": "Runs",
            "statuses": {one.value: format_status(one) for one in RunStatus},
            "kinds": {one.value: one.value.replace("_", " ") for one in RunKind},
            "sources": [one.gate.source for one in request.installation.inspector.list_sources()],
            "filters": {name: request.query.get(name, "") for name in _FILTERS},
            "is_filtered": any(request.query.get(name) for name in _FILTERS),
            "live_query": encode_filters(request.query, (*_FILTERS, "after")),
            **view,
        },
    )


def render_runs(request: PageRequest) -> str:
    return request.render_text("_runs.html", _build_list(request))


def _build_list(request: PageRequest) -> dict[str, object]:
    reader = request.installation.work_reader
    wanted = evolve(_read_filter(request.query), searched_max=_SEARCHED_MAX)
    found = reader.list_runs(wanted, limit=_ROWS_MAX + 1)
    shown = found[:_ROWS_MAX]
    progress = reader.get_progress([run.run_id for run in shown])
    now = reader.now()
    last = shown[-1] if len(found) > _ROWS_MAX else None
    return {
        "runs": [
            {
                **_describe_run(run, progress.get(run.run_id)),
                "lines": describe_run_state(run, now, progress.get(run.run_id)),
            }
            for run in shown
        ],
        "searched_max": _SEARCHED_MAX if wanted.text and last is None else None,
        "first": encode_filters(request.query, _FILTERS) if request.query.get("after") else None,
        "next": last
        and encode_filters(
            request.query, _FILTERS, after=format_position(last.submitted_date, last.run_id)
        ),
    }


def _describe_run(run: Run, progress: RunProgress | None) -> dict[str, object]:
    state = name_run_state(run)
    return {
        "run": run,
        "work": describe_work(run),
        "state": state.replace("_", " "),
        "colour": "failed" if state == "given up" else _COLOURS[run.status],
        "progress": progress,
        "actions": [action for action in RunAction if action.allows(run)],
    }


def _read_filter(query: Mapping[str, str]) -> RunFilter:
    after = read_position(query)
    return RunFilter(
        statuses=read_choice(RunStatus, query, "status"),
        kinds=read_choice(RunKind, query, "kind"),
        source=read_name(query, "source"),
        text=read_text(query),
        after=None if after is None else (after[0], RunId(after[1])),
    )


def show_run(request: PageRequest) -> Response:
    run_id = request.params["run_id"]
    view = _build_run(request, run_id)
    entries = list(request.installation.audit_reader.find_about(run_id))
    return request.render(
        "run.html",
        {
            "title": f"Run {run_id}",
            "entries": [format_entry(one).plain for one in entries[-_AUDIT_MAX:]],
            **view,
        },
    )


def render_run(request: PageRequest) -> str:
    return request.render_text("_run.html", _build_run(request, request.query.get("run_id", "")))


def _build_run(request: PageRequest, run_id: str) -> dict[str, object]:
    installation = request.installation
    found = find_run(installation, run_id)
    source = installation.inspector.get_source(found.run.source)
    return {
        **_describe_run(found.run, found.progress),
        "story": explain_run(found, source, installation.work_policies),
        "facts": build_run_facts(found),
        "attempts": found.attempts,
    }


# changes


def _select_runs(action: RunAction, request: PageRequest) -> Sequence[Run]:
    """Return the runs of a form that the action affects: the named one, or those of a filter."""
    run_id = request.form.get("run_id")
    if run_id is not None:
        run = find_run(request.installation, run_id).run
        return [run] if action.allows(run) else []
    wanted = _read_filter(request.form)
    return request.installation.bulk_runs.select(action, wanted, limit=_BULK_MAX)


def _preview(action: RunAction, request: PageRequest) -> Preview:
    runs = _select_runs(action, request)
    remarks = []
    if len(runs) == _BULK_MAX:
        remarks.append(f"Limited to the newest {_BULK_MAX} runs. Repeat for the others.")
    if len(runs) > _PREVIEWED_MAX:
        remarks.append(f"The table shows the first {_PREVIEWED_MAX}.")
    return Preview(
        title=f"{action.value.capitalize()} {count_runs(len(runs))}",
        count=len(runs),
        noun="run",
        plan=[[run.run_id, run.status.value, run.lease_epoch] for run in runs],
        columns=("Run", "Work", "State", "Effect"),
        rows=[
            (run.run_id, describe_work(run), name_run_state(run), describe_effect(action, run))
            for run in runs[:_PREVIEWED_MAX]
        ],
        remarks=remarks,
    )


def _apply(action: RunAction, request: PageRequest, confirmation: Confirmation) -> str:
    run_ids = [run.run_id for run in _select_runs(action, request)]
    result = request.installation.bulk_runs.apply(
        action, run_ids, reason=confirmation.reason, by=confirmation.by
    )
    return describe_result(action, result)


CANCEL, RETRY = (
    Change(
        path=f"{_PATH}/{action}",
        back=_PATH,
        preview=partial(_preview, action),
        apply=partial(_apply, action),
    )
    for action in (RunAction.CANCEL, RunAction.RETRY)
)

PAGE = Page(
    title="Runs",
    path=_PATH,
    routes=(
        PageRoute(_PATH, show_runs),
        PageRoute(f"{_PATH}/{{run_id}}", show_run),
        *CANCEL.routes,
        *RETRY.routes,
    ),
    feeds=(Feed(name="runs", render=render_runs), Feed(name="run", render=render_run, every_s=1.0)),
)
