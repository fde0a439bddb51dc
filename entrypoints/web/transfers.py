"""Transfers: the downloads and uploads of the workers, live, with their pace and their waits."""

from starlette.responses import Response

from tileferry.application.control.queries import SourceDetails
from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Run, RunProgress, RunStatus
from tileferry.domain.text import format_bytes, format_utc, printable
from tileferry.entrypoints.cli.formatting import format_duration, format_rate
from tileferry.entrypoints.cli.work_lines import describe_work, split_progress
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute

_PATH = "/transfers"
_ROWS_MAX = 50


def show_transfers(request: PageRequest) -> Response:
    return request.render("transfers.html", {"title": "Transfers", **_build_view(request)})


def render_transfers(request: PageRequest) -> str:
    return request.render_text("_transfers.html", _build_view(request))


def _build_view(request: PageRequest) -> dict[str, object]:
    reader = request.installation.work_reader
    running = reader.list_runs(RunFilter(statuses=[RunStatus.PROCESSING]), limit=_ROWS_MAX)
    failed = reader.list_runs(RunFilter(statuses=[RunStatus.ERROR]), limit=_ROWS_MAX)
    progress = reader.get_progress([run.run_id for run in running])
    now = reader.now()
    sources = request.installation.inspector.list_sources()
    return {
        "transfers": [_describe_transfer(run, progress.get(run.run_id)) for run in running],
        "waiting": [
            {
                "run": run,
                "work": describe_work(run),
                "at": run.next_retry_at,
                "is_due": run.next_retry_at <= now,
                "reason": printable(run.error_message or ""),
            }
            for run in failed
            if run.next_retry_at is not None
        ],
        "sources": [_describe_source(one) for one in sources],
        "own_worker": request.installation.background_worker,
        "rows_max": _ROWS_MAX if len(running) == _ROWS_MAX else None,
    }


def _describe_transfer(run: Run, progress: RunProgress | None) -> dict[str, object]:
    counted, waits_for = ("no progress reported yet", None)
    pace = size = left = ""
    if progress is not None:
        counted, waits_for = split_progress(progress)
        size = format_bytes(progress.size_bytes)
        if progress.tiles_per_s is not None:
            rate = format_bytes(round(progress.size_bytes / progress.elapsed_s))
            pace = f"{format_rate(progress.tiles_per_s)} tiles/s, {rate}/s"
        if progress.left_s is not None:
            left = f"about {format_duration(round(progress.left_s))}"
    work = describe_work(run)
    return {
        "run": run,
        "work": work,
        "direction": "↑ upload" if work.startswith("upload ") else "↓ download",
        "worker": printable(run.lease_owner or ""),
        "progress": progress,
        "counted": counted,
        "size": size,
        "pace": pace,
        "left": left,
        "waits_for": waits_for,
    }


def _describe_source(found: SourceDetails) -> dict[str, object]:
    """Return whether the runs of a source may start, and what they wait for."""
    until = found.gate.closed_until
    return {
        "name": found.gate.source,
        "closed_until": None if until is None else format_utc(until),
        "tokens": f"{found.tokens:.1f}",
        "load": found.load,
    }


PAGE = Page(
    title="Transfers",
    path=_PATH,
    routes=(PageRoute(_PATH, show_transfers),),
    feeds=(Feed(name="transfers", render=render_transfers, every_s=1.0),),
)
