"""``tileferry runs submit``: queues work for the workers."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.domain.actors import Actor
from tileferry.domain.work import DownloadArea, UploadFlight, Work
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.options.area import (
    AreaOption,
    BboxOption,
    FlightOption,
    SectorOption,
    ZoomOption,
    coverage_of,
    request_for,
)
from tileferry.entrypoints.cli.options.overriding import operator_name
from tileferry.entrypoints.cli.output import notes, opened_books, option, people, print_json
from tileferry.entrypoints.cli.views.records import record_json
from tileferry.entrypoints.container import Container

SCHEMA = "tileferry.runs.submit.v1"
app = typer.Typer(help="Queue work; a worker does it.", no_args_is_help=True)


@app.command(
    "download",
    epilog="Example: tileferry runs submit download --flight F1 --bbox 36.1,49.9,36.4,50.1 "
    "--zoom 15,16 --sector stable_rear",
)
def download_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    flight: FlightOption,
    sector: SectorOption,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Queue the download of an area for a flight. The same work is not queued twice."""
    with opened_books(config) as container:
        settings = container.config()
        request = request_for(settings, coverage_of(settings, bbox, area, zoom), flight, sector)
        work = DownloadArea(
            source=settings.c11.source,
            flight_id=request.flight_id,
            bbox=request.bbox,
            zoom_levels=request.zoom_levels,
            sector_class=request.sector_class,
        )
        _submit(container, work, json=json)


@app.command("upload", epilog="Example: tileferry runs submit upload --flight F1")
def upload_command(
    *,
    flight: Annotated[str, typer.Option("--flight", help="The flight that captured the tiles.")],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Queue the upload of what a flight captured. The same work is not queued twice.

    The worker uploads once c11.flight_record_file says that the aircraft is on the ground.
    """
    with opened_books(config) as container:
        settings = container.config().c11
        with option("--flight"):
            work = UploadFlight(source=settings.source, flight_id=flight)
        _submit(container, work, json=json)
        _note_flight_record(settings.flight_record_file)


def _submit(container: Container, work: Work, *, json: bool) -> None:
    run, is_new = container.run_control().submit(work, actor=Actor.OPERATOR, by=operator_name())
    if json:
        print_json(SCHEMA, {"new": is_new, **record_json(run)})
    else:
        people.print(run.run_id)
    if not is_new:
        notes.print(f"This work is queued already, and is {run.status}; no second run is needed.")
    notes.print(f"To see what becomes of it: tileferry runs why {run.run_id}")


def _note_flight_record(file: Path | None) -> None:
    if file is None:
        notes.print(
            "c11.flight_record_file is not set here; a worker needs it to know that the aircraft"
            " has landed."
        )
