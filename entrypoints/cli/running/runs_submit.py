"""Work put into the queue."""

from pathlib import Path

from tileferry.domain.actors import Actor
from tileferry.domain.tiles import SectorClass
from tileferry.domain.work import DownloadArea, UploadFlight, Work
from tileferry.entrypoints.cli.options.area import coverage_of, request_for
from tileferry.entrypoints.cli.options.overriding import operator_name
from tileferry.entrypoints.cli.output import notes, opened_books, option, people, print_json
from tileferry.entrypoints.cli.views.records import record_json
from tileferry.entrypoints.container import Container

SCHEMA = "tileferry.runs.submit.v1"


def download_queued(
    config: Path | None,
    *,
    bbox: str | None,
    area: str | None,
    zoom: str,
    flight: str,
    sector: str,
    json: bool,
) -> None:
    """Queue a download."""
    with opened_books(config) as container:
        settings = container.config()
        coverage = coverage_of(settings, bbox, area, zoom)
        request = request_for(settings, coverage, flight, SectorClass(sector))
        work = DownloadArea(
            source=settings.source,
            flight_id=request.flight_id,
            bbox=request.bbox,
            zoom_levels=request.zoom_levels,
            sector_class=request.sector_class,
        )
        _queue(container, work, json=json)


def upload_queued(config: Path | None, *, flight: str, json: bool) -> None:
    """Queue an upload, and say what a worker needs for it."""
    with opened_books(config) as container:
        settings = container.config()
        with option("--flight"):
            work = UploadFlight(source=settings.source, flight_id=flight)
        _queue(container, work, json=json)
        _note_flight_record(settings.c11.flight_record_file)


def _queue(container: Container, work: Work, *, json: bool) -> None:
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
