"""``tileferry giveups``: tiles that the provider would not take, for a human to decide on."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group

app = group("Tiles whose upload was given up: a human decides about them.")


@app.command(
    "list", epilog=examples("tileferry giveups list", "tileferry giveups list --flight F7")
)
def list_command(
    *,
    flight: Annotated[
        str | None, typer.Option("--flight", metavar="FLIGHT", help="Only of this flight.")
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List the tiles that wait for a human, and what the provider said."""
    from tileferry.entrypoints.cli.running import giveups

    giveups.listed(config, flight=flight, json=json)


@app.command("show", epilog=examples("tileferry giveups show flight-f7-d96b6ec7/16/39000/22000"))
def show_command(
    *,
    tile: Annotated[
        str, typer.Argument(metavar="TILE", help="The tile, as the list has it: source/z/x/y.")
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show why a tile was given up, and how to give it another try.

    Its picture is taken out of the cache, into a file that can be looked at.
    """
    from tileferry.entrypoints.cli.running import giveups

    giveups.shown(config, tile=tile, json=json)
