"""``tileferry upload``: brings what a flight captured to the provider."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, single
from tileferry.entrypoints.cli.options.declared import CapturedOption

app = single()


@app.command(
    "upload",
    epilog=examples(
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
            help="A flight record that says so; by default c11.flight_record_file.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Upload what a flight captured. Run again, it sends what is left.

    It begins only once the aircraft is known to be on the ground.

    Exit codes: 0 done, also when nothing was left to do; 3 the provider rejected some tiles; 4
    refused (not on the ground, or the cache is in use); 5 the provider failed; 6 key or
    certificate; 130 stopped.
    """
    from tileferry.entrypoints.cli.running import upload

    upload.uploaded(
        config, flight=flight, on_ground=on_ground, flight_record=flight_record, json=json
    )
