"""What an aircraft captured, taken into the cache."""

from pathlib import Path

import typer
from attrs import asdict

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.application import IngestReport
from tileferry.domain.text import printable
from tileferry.domain.tiles import UploadRequest
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.output import (
    facts,
    notes,
    opened,
    option,
    people,
    print_json,
    print_refusals,
)
from tileferry.entrypoints.cli.progress.counting import counting
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.holding import locked

SCHEMA = "tileferry.ingest.v1"


def ingested(config: Path | None, folder: Path, *, flight: str, json: bool) -> None:
    """Take a folder in; files that are no tiles are named, and stop nothing."""
    with option("--flight"):
        request = UploadRequest(flight_id=flight)
    stop = StopSignals()
    card = CaptureFolderFiles(folder, check=stop.check)
    with opened(config) as container, locked(container), stop:
        stop.defer()
        with counting("Taking in", "files") as on_file:
            report = container.capture_ingest(on_tile=on_file).ingest(request.flight_id, card)
    if json:
        print_json(SCHEMA, asdict(report))
    else:
        _show(report)
    if report.tiles_ingested:
        notes.print(f"Once it has landed: tileferry upload --flight {flight} --on-ground")
    if not (report.tiles_ingested or report.tiles_unchanged or report.files_refused):
        notes.print(f"There is no tile in {printable(str(folder))}: is the card mounted?")
    raise typer.Exit(ExitCode.PARTIAL if report.files_refused else ExitCode.DONE)


def _show(report: IngestReport) -> None:
    rows: dict[str, object] = {
        "taken in": f"{report.tiles_ingested:,}",
        "there before": report.tiles_unchanged,
        "refused": report.files_refused,
    }
    shown = {name: value for name, value in rows.items() if value}
    people.print(facts(f"Captured on flight {report.flight_id}", shown))
    named = [(file.path, file.problem) for file in report.refused]
    print_refusals("refused file", "why", named, count=report.files_refused)
