"""``tileferry ingest``: takes in what an aircraft captured."""

from pathlib import Path
from typing import Annotated

import typer
from attrs import asdict

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.adapters.postgres import schema_status
from tileferry.application import IngestReport
from tileferry.domain.tiles import UploadRequest
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.output import (
    facts,
    locked,
    notes,
    opened,
    option,
    people,
    print_json,
    print_refusals,
)

SCHEMA = "tileferry.ingest.v1"
app = typer.Typer(add_completion=False)


@app.command("ingest", epilog="Example: tileferry ingest --flight F1 /media/sdcard/tiles")
def ingest_command(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Tiles as z/x/y.png (or .jpg, .webp).", exists=True, file_okay=False
        ),
    ],
    flight: Annotated[str, typer.Option("--flight", help="The flight that captured the tiles.")],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Take a folder of captured tiles into the cache, where they wait for their upload.

    A metadata.json in the folder may give captured_at and resolution_m_per_px for all of them;
    without it a file's time and the tile's size on the ground count. Run again, it takes in what
    is new. Exit codes: 0 done; 3 some files are no tiles; 4 the cache is in use, or too small.
    """
    with option("--flight"):
        request = UploadRequest(flight_id=flight)
    with opened(config) as container, locked(container):
        schema_status(container.database()).check()
        report = container.capture_ingest().ingest(request.flight_id, CaptureFolderFiles(folder))
    if json:
        print_json(SCHEMA, asdict(report))
    else:
        _show(report)
    if report.tiles_ingested:
        notes.print(f"Once it has landed: tileferry upload --flight {flight} --on-ground")
    raise typer.Exit(ExitCode.PARTIAL if report.refused else ExitCode.DONE)


def _show(report: IngestReport) -> None:
    rows: dict[str, object] = {
        "taken in": f"{report.tiles_ingested:,}",
        "there before": report.tiles_unchanged,
        "refused": len(report.refused),
    }
    shown = {name: value for name, value in rows.items() if value}
    people.print(facts(f"Captured on flight {report.flight_id}", shown))
    print_refusals("refused file", "why", [(file.path, file.problem) for file in report.refused])
