"""``tileferry runs submit``: queues work for the workers."""

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import (
    AreaOption,
    BboxOption,
    CapturedOption,
    FlightOption,
    SectorOption,
    ZoomOption,
)

app = group("Queue work; a worker does it.")


@app.command(
    "download",
    epilog=examples(
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
    from tileferry.entrypoints.cli.running import runs_submit

    runs_submit.download_queued(
        config, bbox=bbox, area=area, zoom=zoom, flight=flight, sector=sector, json=json
    )


@app.command("upload", epilog=examples("tileferry runs submit upload --flight F7"))
def upload_command(
    *, flight: CapturedOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Queue the upload of what a flight captured. The same work is not queued twice.

    The worker uploads once c11.flight_record_file says that the aircraft is on the ground.
    """
    from tileferry.entrypoints.cli.running import runs_submit

    runs_submit.upload_queued(config, flight=flight, json=json)
