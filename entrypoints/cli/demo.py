"""``tileferry demo``: an operator's day, played with real commands."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.command_group import JsonFlag, declare_command, format_examples

app = declare_command()
SCHEMA = "tileferry.demo.v1"


@app.command(
    "demo", epilog=format_examples("tileferry demo", "tileferry demo --small --report day.html")
)
def demo_command(
    *,
    small: Annotated[
        bool, typer.Option("--small", help="Download fewer tiles; the steps are the same.")
    ] = False,
    report: Annotated[
        Path,
        typer.Option(
            "--report", metavar="FILE", help="Where to write the HTML report.", dir_okay=False
        ),
    ] = Path("build/demo-report.html"),
    json: JsonFlag = False,
) -> None:
    """Play an operator's day: flaky provider, power loss, no lost tile.

    Takes about two minutes and writes one HTML report, which opens offline. Everything else is in
    a temporary folder: the demo does not read your configuration or touch your data.

    With --json, the narration goes to stderr.
    """
    from rich.console import Console

    from tileferry.adapters.filesystem import write_file_atomically
    from tileferry.domain.errors import StorageError
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.config.loader import check_environment
    from tileferry.entrypoints.extras import require_extra

    check_environment()
    with require_extra("web,embedded", needed_by="demo"):
        from tileferry.entrypoints.demo.report.page import render_report
        from tileferry.entrypoints.demo.scenario import SMALL, WHOLE
        from tileferry.entrypoints.demo.story import run_demo

    try:  # fail before the demo runs, not after it
        report.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            action="create the folder",
            path=str(report.parent),
            problem=error.strerror or type(error).__name__,
            remedy="choose another file with --report",
        ) from error
    console = Console(stderr=True, highlight=False) if json else stdout
    found = run_demo(SMALL if small else WHOLE, console, sys.stderr if json else sys.stdout)
    write_file_atomically(report.absolute(), render_report(found).encode())
    if json:
        print_json(SCHEMA, {**found.to_json(), "report": str(report)})
        return
    stdout.print(f"\nDone in {found.seconds:.0f} seconds. Full report, with maps and plots:")
    stdout.print(str(report), markup=False, soft_wrap=True)
