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
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="FOLDER", help="Keep the data in this new folder.", file_okay=False
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Play an operator's day: flaky provider, power loss, no lost tile.

    Takes about two minutes and writes two pages, which open offline: a report, and beside it the
    map of the flight. Everything else is in a temporary folder, or in that of --keep, which
    `tileferry serve` can show. The demo does not read your configuration or touch your data.

    With --json, the narration goes to stderr.
    """
    import os

    from rich.console import Console

    from tileferry.adapters.filesystem import write_file_atomically
    from tileferry.domain.errors import AlreadyThereError
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.config import CONFIG_FILE
    from tileferry.entrypoints.config.loader import check_environment
    from tileferry.entrypoints.extras import require_extra

    check_environment()
    with require_extra("web,embedded", needed_by="demo"):
        from tileferry.entrypoints.demo.report.page import render_report
        from tileferry.entrypoints.demo.scenario import SMALL, WHOLE
        from tileferry.entrypoints.demo.story import run_demo

    # Fail before the demo runs, not after it.
    map_page = report.with_name(f"{report.stem}-map.html")
    _create_folder(report.parent, "--report")
    if keep is not None:
        if os.path.lexists(keep):
            raise AlreadyThereError(path=str(keep), remedy="choose a new folder with --keep")
        _create_folder(keep, "--keep")
    console = Console(stderr=True, highlight=False) if json else stdout
    found = run_demo(
        SMALL if small else WHOLE,
        console,
        sys.stderr if json else sys.stdout,
        map_page=map_page.absolute(),
        keep=keep,
    )
    page = render_report(found, map_page=map_page.name)
    write_file_atomically(report.absolute(), page.encode())
    if json:
        kept = None if keep is None else str(keep)
        paths = {"report": str(report), "map": str(map_page), "kept": kept}
        print_json(SCHEMA, {**found.to_json(), **paths})
        return
    stdout.print(f"\nDone in {found.seconds:.0f} seconds. Open these pages in a browser:")
    for path, text in ((report, "the report, with plots"), (map_page, "the map of the flight")):
        stdout.print(f"{path}  ({text})", markup=False, soft_wrap=True)
    if keep is not None:
        program = sys.argv[0] if Path(sys.argv[0]).name == "tileferry" else "tileferry"
        stdout.print(
            "To see the console with the map, run this and open the address that it prints:"
        )
        stdout.print(f"{program} serve --config {keep / CONFIG_FILE}", markup=False, soft_wrap=True)


def _create_folder(folder: Path, option: str) -> None:
    from tileferry.domain.errors import StorageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            action="create the folder",
            path=str(folder),
            problem=error.strerror or type(error).__name__,
            remedy=f"choose another one with {option}",
        ) from error
