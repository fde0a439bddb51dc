"""``tileferry plan``: what a download would do, before it does it."""

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
RateOption = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="BYTES",
        help="Bytes a second that the link carries, such as 2M; by default measured.",
    ),
]


@app.command(
    "plan",
    epilog=examples(
        "tileferry plan --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7 --sector stable_rear",
    ),
)
def plan_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    flight: FlightOption,
    sector: SectorOption,
    rate: RateOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Say what a download would fetch, take and evict, and whether it fits.

    Nothing is stored and nothing evicted. Without --rate a few tiles are fetched, to measure how
    long it would take. Exit code 4 when the area does not fit into the cache.
    """
    from tileferry.entrypoints.cli.running import plan

    plan.planned(
        config,
        bbox=bbox,
        area=area,
        zoom=zoom,
        flight=flight,
        sector=sector,
        rate=rate,
        json=json,
    )
