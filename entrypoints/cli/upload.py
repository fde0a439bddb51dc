"""``tileferry upload``: upload the tiles that a flight captured."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import CapturedOption, WaitOption

if TYPE_CHECKING:
    from tileferry.application.ports.uploads import FlightRecords
    from tileferry.domain.errors import TileManagerError
    from tileferry.domain.tiles import TileUploadStatus, UploadBatchReport, UploadRequest
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.transfer_progress import UploadProgress
    from tileferry.entrypoints.installation import Installation

app = declare_command()
SCHEMA = "tileferry.upload.v1"


@app.command(
    "upload",
    epilog=format_examples(
        "tileferry upload --flight F7 --on-ground",
        "tileferry upload --flight F7 --flight-record record.json",
    ),
)
def upload_command(
    *,
    flight: CapturedOption,
    on_ground: Annotated[
        bool, typer.Option("--on-ground", help="Confirm that the aircraft has landed.")
    ] = False,
    flight_record: Annotated[
        Path | None,
        typer.Option(
            "--flight-record",
            metavar="FILE",
            help="Flight record that confirms the landing (default: c11.flight_record_file).",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    wait: WaitOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Upload the tiles that a flight captured. Re-run to resume.

    Refused until the aircraft is known to be on the ground.

    Exit codes: 0 done, or nothing to do; 3 some tiles are not delivered: rejected, unreadable or
    given up, now or earlier; 4 refused (not on the ground, or the cache is in use); 5 the provider
    failed; 6 API key or certificate rejected; 130 stopped.
    """
    from tileferry.domain.text import printable
    from tileferry.domain.tiles import UploadRequest
    from tileferry.entrypoints.cli.failures import error_to_json
    from tileferry.entrypoints.cli.output import (
        blame_option,
        open_installation,
        print_json,
        stderr,
    )
    from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals
    from tileferry.entrypoints.cli.transfer_progress import UploadProgress

    if on_ground and flight_record is not None:
        raise typer.BadParameter("give either --on-ground or --flight-record")
    with blame_option("--flight"):
        request = UploadRequest(flight_id=flight)
    stop = StopSignals()
    progress = UploadProgress(stop)
    with stop, open_installation(config, progress, clock=StoppableClock(stop)) as installation:
        stop.grace_s = installation.config.c11.stop_grace_s
        records = installation.select_flight_records(flight, flight_record, on_ground=on_ground)
        report, error = _run_upload(installation, request, records, progress, wait)
        if error is None and not installation.tile_inventory.count_captured(flight):
            stderr.print(f"The cache has no captured tiles of flight {printable(flight)}.")
        code = _choose_exit_code(report, error)
        if json:
            body = _report_to_json(report)
            if error is not None:
                body["error"] = error_to_json(error, code)
            print_json(SCHEMA, body)
        elif error is None:
            _print_report(report)
        _print_next_step(report, error)
        raise typer.Exit(code)


def _run_upload(
    installation: "Installation",
    request: "UploadRequest",
    records: "FlightRecords | None",
    progress: "UploadProgress",
    wait: str | None,
) -> "tuple[UploadBatchReport, TileManagerError | KeyboardInterrupt | None]":
    """Upload under the cache lock; return the report, and the error that ended it, if any."""
    from tileferry.application.ports.progress import UploadStarted
    from tileferry.domain.errors import TileManagerError
    from tileferry.entrypoints.cli.output import hold_cache
    from tileferry.entrypoints.cli.progress_view import ProgressView

    try:
        with hold_cache(installation, wait):
            pending = installation.tile_inventory.count_pending(request.flight_id)
            uploader = installation.build_uploader(records)
            with ProgressView(progress):
                progress(UploadStarted(flight_id=request.flight_id, tiles=pending))
                return uploader.upload_pending_tiles(request), None
    except (TileManagerError, KeyboardInterrupt) as error:
        return progress.report(request.flight_id), error


def _choose_exit_code(
    report: "UploadBatchReport", error: "TileManagerError | KeyboardInterrupt | None"
) -> "ExitCode":
    from tileferry.domain.errors import TileManagerError
    from tileferry.domain.tiles import UploadOutcome
    from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code

    if isinstance(error, TileManagerError):
        return get_exit_code(error)
    if error is not None:
        return ExitCode.INTERRUPTED
    match report.outcome:
        case UploadOutcome.SUCCESS:
            return ExitCode.DONE
        case UploadOutcome.PARTIAL:
            return ExitCode.PARTIAL
        case UploadOutcome.FAILURE:
            return ExitCode.PROVIDER_FAILED


def _print_next_step(
    report: "UploadBatchReport", error: "TileManagerError | KeyboardInterrupt | None"
) -> None:
    from tileferry.domain.text import format_utc
    from tileferry.entrypoints.cli.output import stderr
    from tileferry.entrypoints.cli.remedies import describe_error

    safe = f"{report.tiles_acknowledged:,} tiles are delivered and recorded"
    if isinstance(error, KeyboardInterrupt):
        stderr.print(f"Stopped. {safe}; re-run to resume.")
        return
    if error is not None:
        stderr.print(f"tileferry: {describe_error(error)}")
        if report.per_tile_status:
            stderr.print(f"{safe}; re-run to resume.")
        return
    given_up = report.undelivered_giveups
    if given_up:
        tiles = "1 tile was" if given_up == 1 else f"{given_up:,} tiles were"
        stderr.print(
            f"{tiles} given up and not delivered; decide what to do:"
            f" tileferry giveups list --flight {report.flight_id}"
        )
    if report.tiles_unreadable:
        count = report.tiles_unreadable
        tiles = "1 tile is" if count == 1 else f"{count:,} tiles are"
        first = ", after reopening those given up" if report.tiles_given_up else ""
        stderr.print(
            f"{tiles} unreadable in the cache. Run tileferry ingest on the original folder{first},"
            " then re-run."
        )
    if report.next_retry_at_s is not None:
        moment = datetime.fromtimestamp(report.next_retry_at_s, UTC)
        stderr.print(f"Re-run at {format_utc(moment)} to resume.")


def _report_to_json(report: "UploadBatchReport") -> dict[str, Any]:
    from attrs import asdict

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


def _print_report(report: "UploadBatchReport") -> None:
    from tileferry.domain.tiles import TileUploadStatus, UploadOutcome
    from tileferry.entrypoints.cli.output import build_facts_table, print_refusals, stdout

    outcomes = {
        UploadOutcome.SUCCESS: "done",
        UploadOutcome.PARTIAL: "partial: some tiles were not delivered",
        UploadOutcome.FAILURE: "failed",
    }
    rows: dict[str, object] = {
        "outcome": outcomes[report.outcome],
        "delivered": f"{report.tiles_acknowledged:,}",
        "rejected": report.tiles_rejected,
        "unreadable": report.tiles_unreadable,
        "given up now": report.tiles_given_up,
        "given up earlier": report.undelivered_giveups - report.tiles_given_up,
        "retries": report.retry_count,
    }
    if not report.per_tile_status:
        rows = {"outcome": "nothing to upload", "given up earlier": report.undelivered_giveups}
    shown = {name: value for name, value in rows.items() if value}
    stdout.print(build_facts_table(f"Upload of flight {report.flight_id}", shown))
    rejected = _select_by_status(report, TileUploadStatus.REJECTED)
    print_refusals("rejected tile", "reason", rejected)
    unreadable = _select_by_status(report, TileUploadStatus.UNREADABLE)
    print_refusals("unreadable tile", "reason", unreadable)


def _select_by_status(
    report: "UploadBatchReport", status: "TileUploadStatus"
) -> list[tuple[str, str]]:
    return [
        (str(entry.tile_id), entry.reason or "")
        for entry in report.per_tile_status
        if entry.status is status
    ]
