"""``tileferry ingest``: store the tiles that an aircraft captured."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import CapturedOption, SchemeOption, WaitOption

app = declare_command()
SCHEMA = "tileferry.ingest.v1"


@app.command("ingest", epilog=format_examples("tileferry ingest --flight F7 card"))
def ingest_command(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of tiles: z/x/y.png (or .jpg, .webp, .avif).",
            exists=True,
            file_okay=False,
        ),
    ],
    flight: CapturedOption,
    scheme: SchemeOption = None,
    wait: WaitOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Store captured tiles in the cache, ready for upload.

    A metadata.json in the folder can give captured_at and resolution_m_per_px for all tiles;
    otherwise the file's modification time and the zoom level's resolution are used. Re-running
    stores only new tiles.

    Exit codes: 0 done; 3 some files are not tiles; 4 the cache is in use or too small.
    """
    from attrs import asdict

    from tileferry.adapters.filesystem import CaptureFolderFiles
    from tileferry.domain.text import printable
    from tileferry.domain.tiles import UploadRequest
    from tileferry.domain.tiles.capture import TileScheme
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import (
        blame_option,
        build_facts_table,
        hold_cache,
        open_installation,
        print_json,
        print_refusals,
        stderr,
        stdout,
    )
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.cli.signals import StoppableClock, StopSignals

    with blame_option("--flight"):
        request = UploadRequest(flight_id=flight)
    stop = StopSignals()
    row_order = None if scheme is None else TileScheme(scheme)
    card = CaptureFolderFiles(folder, check=stop.check, scheme=row_order)
    progress = ItemProgress(stop)
    opened = open_installation(config, progress, clock=StoppableClock(stop))
    with opened as installation, hold_cache(installation, wait), stop:
        stop.defer()
        with ProgressView(progress):
            report = installation.capture_ingest.ingest(request.flight_id, card)
    if json:
        print_json(SCHEMA, asdict(report))
    else:
        rows: dict[str, object] = {
            "stored": f"{report.tiles_ingested:,}",
            "already stored": report.tiles_unchanged,
            "refused": report.files_refused,
        }
        shown = {name: value for name, value in rows.items() if value}
        stdout.print(build_facts_table(f"Captured on flight {report.flight_id}", shown))
        refused = [(file.path, file.problem) for file in report.refused]
        print_refusals("refused file", "why", refused, count=report.files_refused)
    if report.tiles_ingested:
        stderr.print(f"After landing, run: tileferry upload --flight {flight} --on-ground")
    if not (report.tiles_ingested or report.tiles_unchanged or report.files_refused):
        stderr.print(f"No tiles found in {printable(str(folder))}; is the card mounted?")
    raise typer.Exit(ExitCode.PARTIAL if report.files_refused else ExitCode.DONE)
