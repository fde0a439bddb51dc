"""The demo: played on this terminal, and told again on a page."""

import sys
from pathlib import Path

from rich.console import Console

from tileferry.adapters.filesystem import write_whole_file
from tileferry.domain.errors import StorageError
from tileferry.entrypoints.cli.output import people, print_json
from tileferry.entrypoints.demo.play import play
from tileferry.entrypoints.demo.report.page import page
from tileferry.entrypoints.demo.scenery import SMALL, WHOLE

SCHEMA = "tileferry.demo.v1"


def played(report: Path, *, small: bool, json: bool) -> None:
    """Play it, write the page, and say where it is."""
    _make_room(report)
    console = Console(stderr=True, highlight=False) if json else people
    found = play(SMALL if small else WHOLE, console, sys.stderr if json else sys.stdout)
    write_whole_file(report.absolute(), page(found).encode())
    if json:
        print_json(SCHEMA, {**found.facts(), "report": str(report)})
        return
    people.print(f"\nThat took {found.seconds:.0f} seconds. The whole story, with maps and plots:")
    people.print(str(report), markup=False, soft_wrap=True)


def _make_room(report: Path) -> None:
    """Find out before the story, not after it, that its page cannot be written."""
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            action="make the folder",
            path=str(report.parent),
            problem=error.strerror or type(error).__name__,
            remedy="give --report another file",
        ) from error
