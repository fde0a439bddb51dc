"""``tileferry download``: brings an area into the cache."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, single
from tileferry.entrypoints.cli.options.declared import (
    AreaOption,
    BboxOption,
    FlightOption,
    SectorOption,
    ZoomOption,
)

app = single()


@app.command(
    "download",
    epilog=examples(
        "tileferry download --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7"
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
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Refuse to begin what no earlier run has begun.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Fetch everything anew, also what was stored before.")
    ] = False,
    max_failures: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Go on while no more of the tiles than this fail.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Download an area for a flight. Run again, it goes on where it was ended.

    Exit codes: 0 done, also when nothing was left to do; 3 some tiles are still missing; 4 refused
    (the cache is in use, or too small); 5 the provider failed; 6 key or certificate; 130 stopped.
    """
    from tileferry.entrypoints.cli.running import download

    download.downloaded(
        config,
        bbox=bbox,
        area=area,
        zoom=zoom,
        flight=flight,
        sector=sector,
        only_failed=only_failed,
        again=again,
        max_failures=max_failures,
        json=json,
    )
