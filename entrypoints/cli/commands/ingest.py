"""``tileferry ingest``: takes in what an aircraft captured."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, single
from tileferry.entrypoints.cli.options.declared import CapturedOption

app = single()


@app.command("ingest", epilog=examples("tileferry ingest --flight F7 card"))
def ingest_command(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Tiles as z/x/y.png (or .jpg, .webp).", exists=True, file_okay=False
        ),
    ],
    flight: CapturedOption,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Take the tiles that a flight captured into the cache, to be uploaded.

    A metadata.json in the folder may give captured_at and resolution_m_per_px for all of them;
    without it a file's time and the tile's size on the ground count. Run again, it takes in what
    is new.

    Exit codes: 0 done; 3 some files are no tiles; 4 the cache is in use, or too small.
    """
    from tileferry.entrypoints.cli.running import ingest

    ingest.ingested(config, folder, flight=flight, json=json)
