"""``tileferry demo``: an operator's day, played with real commands."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import JsonFlag, examples, single

app = single()


@app.command("demo", epilog=examples("tileferry demo", "tileferry demo --small --report day.html"))
def demo_command(
    *,
    small: Annotated[
        bool, typer.Option("--small", help="Download fewer tiles; the story is the same.")
    ] = False,
    report: Annotated[
        Path,
        typer.Option(
            "--report", metavar="FILE", help="Where the page about it goes.", dir_okay=False
        ),
    ] = Path("build/demo-report.html"),
    json: JsonFlag = False,
) -> None:
    """Play an operator's day: a bad provider, a lost laptop, and not one lost tile.

    It takes about two minutes and leaves one HTML page, which opens offline. Everything else lives
    in a temporary folder: nothing is read from your configuration, and nothing of yours is touched.

    With --json, the story goes to stderr.
    """
    from tileferry.entrypoints.cli.running.extras import extra

    with extra("web,embedded", needed_by="demo"):
        from tileferry.entrypoints.cli.running import demo

    demo.played(report, small=small, json=json)
