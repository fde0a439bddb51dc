"""``tileferry runs submit``: queues work for the workers."""

from pathlib import Path

from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import SectorClass
from tileferry.domain.work import DownloadArea, UploadFlight, Work
from tileferry.entrypoints.cli.area_options import build_download_request, parse_coverage
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.formatting import record_to_json
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    CapturedOption,
    FlightOption,
    SectorOption,
    ZoomOption,
)
from tileferry.entrypoints.cli.output import blame_option, open_checked, print_json, stderr, stdout
from tileferry.entrypoints.cli.partition_options import get_operator_name
from tileferry.entrypoints.container import Container

app = declare_group("Queue work; a worker does it.")


@app.command(
    "download",
    epilog=format_examples(
        "tileferry runs submit download --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7"
        " --sector stable_rear",
    ),
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
    from tileferry.entrypoints.cli import runs_submit

    runs_submit.queue_download(
        config, bbox=bbox, area=area, zoom=zoom, flight=flight, sector=sector, json=json
    )


@app.command("upload", epilog=format_examples("tileferry runs submit upload --flight F7"))
def upload_command(
    *, flight: CapturedOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Queue the upload of what a flight captured. The same work is not queued twice.

    The worker uploads once c11.flight_record_file says that the aircraft is on the ground.
    """
    from tileferry.entrypoints.cli import runs_submit

    runs_submit.queue_upload(config, flight=flight, json=json)


SCHEMA = "tileferry.runs.submit.v1"


def queue_download(
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
    with open_checked(config) as container:
        settings = container.config()
        coverage = parse_coverage(settings, bbox, area, zoom)
        request = build_download_request(settings, coverage, flight, SectorClass(sector))
        work = DownloadArea(
            source=settings.source,
            flight_id=request.flight_id,
            area=request.area,
        )
        _submit_work(container, work, json=json)


def queue_upload(config: Path | None, *, flight: str, json: bool) -> None:
    """Queue an upload, and say what a worker needs for it."""
    with open_checked(config) as container:
        settings = container.config()
        with blame_option("--flight"):
            work = UploadFlight(source=settings.source, flight_id=flight)
        _submit_work(container, work, json=json)
        _warn_missing_flight_record(settings.c11.flight_record_file)


def _submit_work(container: Container, work: Work, *, json: bool) -> None:
    run, is_new = container.run_control().submit(work, actor=Actor.OPERATOR, by=get_operator_name())
    if json:
        print_json(SCHEMA, {"new": is_new, **record_to_json(run)})
    else:
        stdout.print(run.run_id)
    if not is_new:
        stderr.print(f"This work is queued already, and is {run.status}; no second run is needed.")
    stderr.print(f"To see what becomes of it: tileferry runs why {run.run_id}")


def _warn_missing_flight_record(file: Path | None) -> None:
    if file is None:
        stderr.print(
            "c11.flight_record_file is not set here; a worker needs it to know that the aircraft"
            " has landed."
        )
