"""The report of a download, and the suggested next step."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tileferry.domain.errors import RateLimitedError, SatelliteProviderError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.text import format_bytes, format_utc
from tileferry.domain.tiles import DownloadBatchReport, DownloadOutcome, DownloadRequest
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
from tileferry.entrypoints.cli.formatting import format_duration
from tileferry.entrypoints.cli.output import build_facts_table
from tileferry.entrypoints.cli.transfer_progress import DownloadProgress

with import_on_call(globals()):
    from rich.table import Table

_OUTCOMES = {
    DownloadOutcome.SUCCESS: "done",
    DownloadOutcome.PARTIAL: "partial: some tiles failed",
    DownloadOutcome.FAILURE: "failed",
    DownloadOutcome.IDEMPOTENT_NO_OP: "already complete; nothing to do",
}


def build_report_table(report: DownloadBatchReport, *, stopped: bool = False) -> Table:
    """Return the report as a table without zero counts."""
    rows: dict[str, object] = {
        "outcome": "stopped" if stopped else _describe_outcome(report),
        "tiles in the area": f"{report.tiles_requested:,}" if report.tiles_requested else None,
        "in the cache": f"{report.tiles_downloaded:,}",
        "of these already there": f"{report.tiles_reused:,}" if report.tiles_reused else None,
        "of these downgraded (stale)": report.tiles_downgraded,
        "refused: resolution": report.tiles_rejected_resolution,
        "refused: too old": report.tiles_rejected_freshness,
        "absent at the provider": report.tiles_missing,
        "failed": report.tiles_failed,
        "fetched": format_bytes(report.bytes_downloaded) if report.bytes_downloaded else None,
        "retries": report.retry_count,
    }
    shown = {name: value for name, value in rows.items() if value}
    return build_facts_table(f"Download for flight {report.flight_id}", shown)


def _describe_outcome(report: DownloadBatchReport) -> str:
    if report.outcome is DownloadOutcome.SUCCESS and report.reasons:
        return "done; not every tile of the area is in the cache"
    return _OUTCOMES[report.outcome]


def suggest_next_step(
    report: DownloadBatchReport,
    error: BaseException | None,
    requests: Sequence[DownloadRequest],
    progress: DownloadProgress,
    access_settings: str,
) -> str | None:
    """Return how many tiles are safe, what is missing and why, and what to do next.

    ``access_settings`` are the settings to check when the source refuses access.
    """
    again = "re-run to resume"
    missing = describe_missing(report)
    idle = ""
    if progress.idle_s is not None:
        idle = f" Gave up: nothing improved for {format_duration(progress.idle_s)}."
    safe = f"{progress.safe_in_all:,} tiles are safe"
    if progress.total is None and error is not None:
        safe = "No tile was fetched; tiles from earlier runs are safe"
    if isinstance(error, KeyboardInterrupt):
        return f"Stopped. {safe}; {again}.{missing}"
    if isinstance(error, SatelliteProviderError | RateLimitedError):
        if get_exit_code(error) is ExitCode.AUTHENTICATION:
            return f"{safe}. Check {access_settings}; then {again}."
    elif error is not None:
        return None if progress.total is None else f"{safe}. Fix the cause, then {again}."
    elif report.outcome in {DownloadOutcome.SUCCESS, DownloadOutcome.IDEMPOTENT_NO_OP}:
        return _suggest_after_success(report, requests)
    if report.next_retry_at_s is None:
        return f"{safe}. A re-run would fail the same way.{missing}"
    when = format_utc(datetime.fromtimestamp(report.next_retry_at_s, UTC))
    return f"{safe}. Re-run at {when} to resume.{idle}{missing}"


def describe_missing(report: DownloadBatchReport) -> str:
    """Return how many tiles are missing, by reason with a few examples; empty if none are."""
    if not report.tiles_left:
        return ""
    parts = []
    for group in sorted(report.failures, key=lambda group: -group.tiles):
        more = ", …" if group.tiles > len(group.examples) else ""
        parts.append(f"{group.tiles:,} {group.reason} ({', '.join(group.examples)}{more})")
    rest = report.tiles_left - sum(group.tiles for group in report.failures)
    if rest > 0:
        parts.append(f"{rest:,} not attempted")
    count = f"{report.tiles_left:,} of {report.tiles_requested:,} tiles"
    return f"\nMissing: {count}: {'; '.join(parts)}."


def _suggest_after_success(report: DownloadBatchReport, requests: Sequence[DownloadRequest]) -> str:
    if report.outcome is DownloadOutcome.SUCCESS and not report.tiles_requested:
        return (
            "The provider has no tiles there; nothing was stored. Check the area and its zoom "
            "levels."
        )
    refused = "".join(f"{reason}.\n" for reason in report.reasons)
    return (
        f"{refused}Before the flight, run: tileferry cache verify --flight {requests[0].flight_id}"
    )
