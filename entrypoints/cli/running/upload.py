"""What a flight captured, brought to the provider."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from attrs import asdict

from tileferry.application.ports.uploads import FlightRecords
from tileferry.domain.errors import TileManagerError
from tileferry.domain.text import in_utc, printable
from tileferry.domain.tiles import (
    TileUploadStatus,
    UploadBatchReport,
    UploadOutcome,
    UploadRequest,
    VotingStatus,
)
from tileferry.entrypoints.cli.exits import ExitCode, exit_code_of
from tileferry.entrypoints.cli.failures import error_json
from tileferry.entrypoints.cli.output import (
    facts,
    notes,
    opened,
    option,
    people,
    print_json,
    print_refusals,
)
from tileferry.entrypoints.cli.progress.upload import UploadProgress
from tileferry.entrypoints.cli.progress.view import ProgressView
from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals
from tileferry.entrypoints.container import Container, tile_uploader_of
from tileferry.entrypoints.holding import locked
from tileferry.entrypoints.landing import records_of

SCHEMA = "tileferry.upload.v1"

_STOPPED = ExitCode.INTERRUPTED
_OUTCOMES = {
    UploadOutcome.SUCCESS: "done",
    UploadOutcome.PARTIAL: "partial: some tiles are not delivered",
    UploadOutcome.FAILURE: "failed",
}
_CODES = {
    UploadOutcome.SUCCESS: ExitCode.DONE,
    UploadOutcome.PARTIAL: ExitCode.PARTIAL,
    UploadOutcome.FAILURE: ExitCode.PROVIDER_FAILED,
}


def uploaded(
    config: Path | None, *, flight: str, on_ground: bool, flight_record: Path | None, json: bool
) -> None:
    """Upload what waits, once the aircraft is on the ground."""
    if on_ground and flight_record is not None:
        raise typer.BadParameter("give either --on-ground or --flight-record")
    with option("--flight"):
        request = UploadRequest(flight_id=flight)
    with StopSignals() as stop, opened(config) as container:
        container.clock.override(StoppableClock(stop))
        stop.grace_s = container.config().c11.stop_grace_s
        progress = UploadProgress(stop)
        records = records_of(container, flight, flight_record, on_ground=on_ground)
        report, error = _carried_out(container, request, records, progress)
        if error is None and not report.per_tile_status:
            _note_why_nothing(container, flight)
        _tell(report, error, json=json)


def _carried_out(
    container: Container,
    request: UploadRequest,
    records: FlightRecords | None,
    progress: UploadProgress,
) -> tuple[UploadBatchReport, TileManagerError | KeyboardInterrupt | None]:
    """Carry it out; errors come back as well, with how far it got."""
    try:
        with locked(container):
            progress.tiles = container.metadata_store().count_pending(request.flight_id)
            trail = container.audit_trail()
            trail.sinks = [progress, *trail.sinks]
            uploader = tile_uploader_of(container, flight_records=records, observer=progress)
            with ProgressView(progress, notes):
                return uploader.upload_pending_tiles(request), None
    except (TileManagerError, KeyboardInterrupt) as error:
        return progress.report(request.flight_id), error


def _note_why_nothing(container: Container, flight: str) -> None:
    """Say why no tile waits, where that may surprise."""
    captured = container.metadata_store().count_captured(flight)
    given_up = captured.get(VotingStatus.UPLOAD_GIVEUP, 0)
    if not captured:
        notes.print(f"The cache has no tile that was captured on flight {printable(flight)}.")
    if given_up:
        tiles = "1 tile is" if given_up == 1 else f"{given_up:,} tiles are"
        notes.print(f"{tiles} given up: tileferry giveups list --flight {printable(flight)}")


def _tell(
    report: UploadBatchReport, error: TileManagerError | KeyboardInterrupt | None, *, json: bool
) -> None:
    """Report, say what to do next, and end with the right code."""
    stopped = isinstance(error, KeyboardInterrupt)
    if json:
        body = _json_of(report)
        if error is not None:
            code = exit_code_of(error) if isinstance(error, TileManagerError) else _STOPPED
            body["error"] = error_json(error, code)
        print_json(SCHEMA, body)
    elif error is None:
        _show(report)
    safe = f"{report.tiles_acknowledged:,} tiles are delivered and recorded"
    if isinstance(error, TileManagerError):
        notes.print(f"tileferry: {error}")
        if report.per_tile_status:
            notes.print(f"{safe}; run the same command to go on.")
        raise typer.Exit(exit_code_of(error))
    if stopped:
        notes.print(f"Stopped. {safe}; run the same command to go on.")
        raise typer.Exit(_STOPPED)
    if report.tiles_given_up:
        notes.print(f"A human has to decide: tileferry giveups list --flight {report.flight_id}")
    if report.tiles_unreadable:
        notes.print(
            f"The cache cannot read {report.tiles_unreadable:,} of the tiles: run tileferry ingest "
            "on the folder they came from, then the same command."
        )
    if report.next_retry_at_s is not None:
        moment = datetime.fromtimestamp(report.next_retry_at_s, UTC)
        notes.print(f"Come back at {in_utc(moment)}; run the same command to go on.")
    raise typer.Exit(_CODES[report.outcome])


def _json_of(report: UploadBatchReport) -> dict[str, Any]:
    return {
        **asdict(report, recurse=False),
        "per_tile_status": [
            {"tile_id": str(entry.tile_id), "status": entry.status, "reason": entry.reason}
            for entry in report.per_tile_status
        ],
        "tiles_acknowledged": report.tiles_acknowledged,
        "tiles_rejected": report.tiles_rejected,
        "tiles_unreadable": report.tiles_unreadable,
    }


def _show(report: UploadBatchReport) -> None:
    rows: dict[str, object] = {
        "outcome": _OUTCOMES[report.outcome],
        "delivered": f"{report.tiles_acknowledged:,}",
        "rejected": report.tiles_rejected,
        "not readable": report.tiles_unreadable,
        "given up by this": report.tiles_given_up,
        "retries": report.retry_count,
    }
    if not report.per_tile_status:
        rows = {"outcome": "nothing was waiting"}
    shown = {name: value for name, value in rows.items() if value}
    people.print(facts(f"Upload of flight {report.flight_id}", shown))
    rejected = _named(report, TileUploadStatus.REJECTED)
    print_refusals("rejected tile", "what the provider said", rejected)
    unreadable = _named(report, TileUploadStatus.UNREADABLE)
    print_refusals("tile of the cache", "why it was not sent", unreadable)


def _named(report: UploadBatchReport, status: TileUploadStatus) -> list[tuple[str, str]]:
    return [
        (str(entry.tile_id), entry.reason or "")
        for entry in report.per_tile_status
        if entry.status is status
    ]
