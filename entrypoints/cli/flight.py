"""``tileferry flight``: list flights, show and report them, pin, expire and remove them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import FlightArgument, OptionalReason

if TYPE_CHECKING:
    from tileferry.domain.tiles import OperatorNote

app = declare_group("List, report, pin, expire and remove flights.")
LIST_SCHEMA = "tileferry.flight.list.v1"
SHOW_SCHEMA = "tileferry.flight.show.v1"
REPORT_SCHEMA = "tileferry.flight.report.v1"
CHANGE_SCHEMA = "tileferry.flight.change.v1"


@app.command("list", epilog=format_examples("tileferry flight list"))
def list_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """List the flights: areas, tiles, imagery, verdict and uploads.

    Tiles that several flights need are counted for each, and as shared. The verdict is judged from
    the metadata, without reading tiles.
    """
    from tileferry.entrypoints.cli.flight_view import build_list, summary_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    with open_installation(config) as installation:
        found = installation.flights.list_summaries()
        judged = [installation.readiness.check_flight(item.flight, quick=True) for item in found]
    if json:
        rows = [summary_to_json(item, one) for item, one in zip(found, judged, strict=True)]
        print_json(LIST_SCHEMA, {"flights": rows})
    elif not found:
        stdout.print("There are no flights yet; a download creates one.")
    else:
        stdout.print(build_list(found, judged))


@app.command("show", epilog=format_examples("tileferry flight show F7"))
def show_command(
    *, flight: FlightArgument, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Show a flight and its areas.

    The verdict is judged from the metadata; `tileferry cache verify --flight` reads the tiles too.
    """
    from tileferry.entrypoints.cli.flight_view import (
        areas_to_json,
        build_areas,
        build_facts,
        summary_to_json,
    )
    from tileferry.entrypoints.cli.output import (
        blame_option,
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )

    with open_installation(config) as installation, blame_option("FLIGHT"):
        found = installation.flights.get_summary(flight)
        judged = installation.readiness.check_flight(found.flight, quick=True)
    if json:
        body = {**summary_to_json(found, judged), "areas": areas_to_json(found.flight, judged)}
        print_json(SHOW_SCHEMA, body)
        return
    stdout.print(build_facts_table(f"Flight {flight}", build_facts(found, judged)))
    if found.flight.areas:
        stdout.print(build_areas(found.flight, judged))


@app.command(
    "report",
    epilog=format_examples("tileferry flight report F7 --output f7.html"),
)
def report_command(
    *,
    flight: FlightArgument,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", dir_okay=False, help="HTML file to write."),
    ],
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="DATE", help="Date of the flight, in UTC (default: now)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Judge from the metadata; do not check every tile.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Write an HTML report: the verdict, and a map of the imagery.

    The page is one file that needs no network. Exit code 3 if the verdict is NO-GO, 4 if the
    file exists.
    """
    import os

    from tileferry.adapters.filesystem import write_file_atomically
    from tileferry.domain.errors import AlreadyThereError, Remedy
    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.parsing import parse_day
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.extras import require_extra

    with require_extra("web", needed_by="flight report"):
        from tileferry.entrypoints.flight_report import make_flight_report
    if not replace and os.path.lexists(output):
        raise AlreadyThereError(path=str(output), remedy=Remedy.ALLOW_REPLACING)
    day = None if on is None else parse_day(on, option="--on")
    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        with ProgressView(progress):
            report = make_flight_report(installation, flight, on=day, quick=quick)
        page = report.render().encode()
    write_file_atomically(output.absolute(), page)
    verdict = report.judged.verdict
    if json:
        body = {
            "flight_id": flight,
            "verdict": str(verdict),
            "go": verdict.is_go,
            "reasons": list(verdict.reasons),
            "bytes_checked": report.judged.bytes_checked,
            "path": str(output),
            "size_bytes": len(page),
        }
        print_json(REPORT_SCHEMA, body)
    else:
        stdout.print(
            f"{verdict} for flight {flight}: {output}, {format_bytes(len(page))}",
            markup=False,
            soft_wrap=True,
        )
    if not verdict.is_go:
        raise typer.Exit(ExitCode.PARTIAL)


@app.command("pin", epilog=format_examples("tileferry flight pin F7"))
def pin_command(
    *,
    flight: FlightArgument,
    reason: OptionalReason = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Protect the tiles of a flight's areas from eviction.

    Every tile inside the areas is protected, whichever flight it was last downloaded for, until the
    flight is unpinned, expires or is removed.
    """
    from tileferry.entrypoints.cli.output import stderr

    if _change(flight, "pin", reason, config, json=json) == 0:
        stderr.print(
            "This flight has no areas yet; check the name, or download its area. Until then, only"
            " tiles that were imported or captured for it are protected."
        )


@app.command("unpin", epilog=format_examples("tileferry flight unpin F7"))
def unpin_command(
    *,
    flight: FlightArgument,
    reason: OptionalReason = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Allow the tiles of a flight to be evicted again."""
    _change(flight, "unpin", reason, config, json=json)


@app.command(
    "expire",
    epilog=format_examples(
        "tileferry flight expire F7 --at 2026-12-01",
        "tileferry flight expire F7 --reason 'flown'",
        "tileferry flight expire F7 --never",
    ),
)
def expire_command(
    *,
    flight: FlightArgument,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Date (its start, in UTC) or time (default: now)."
        ),
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="Remove the end date.")] = False,
    reason: OptionalReason = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Set the time from which a flight's pin has no effect.

    The flight keeps its areas. Exit code 4 if the flight is pinned, the time has passed, and there
    is no --reason.
    """
    if never and at is not None:
        raise typer.BadParameter("--at and --never exclude each other")
    _change(flight, "never" if never else "expire", reason, config, at=at, json=json)


@app.command("rm", epilog=format_examples("tileferry flight rm F7 --reason 'flown'"))
def rm_command(
    *,
    flight: FlightArgument,
    reason: OptionalReason = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Remove a flight and its areas.

    Its tiles stay in the cache until space is needed; tiles of other flights are not affected.

    Exit code 4 if captured tiles are not uploaded yet, or if the flight is pinned and there is no
    --reason.
    """
    _change(flight, "remove", reason, config, json=json)


def _change(
    flight: str,
    action: str,
    reason: str | None,
    config: Path | None,
    *,
    at: str | None = None,
    json: bool,
) -> int:
    """Change a flight and print what it is now; return the number of its areas."""

    from tileferry.entrypoints.cli.flight_view import describe_change, summary_to_json
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json, stdout
    from tileferry.entrypoints.cli.parsing import parse_day_or_time

    note = _build_note(reason)
    with open_installation(config) as installation, blame_option("FLIGHT"):
        flights = installation.flights
        match action:
            case "pin":
                flights.pin(flight, note)
                found = flights.get_summary(flight)
            case "unpin":
                flights.get_flight(flight)  # a mistyped name is an error here
                flights.unpin(flight, note)
                found = flights.get_summary(flight)
            case "remove":
                found = flights.remove(flight, note)
            case "never":
                found = flights.expire(flight, None, note)
            case _:
                now = installation.get_database_time()
                end = now if at is None else parse_day_or_time(at, option="--at")
                found = flights.expire(flight, end, note)
        judged = installation.readiness.check_flight(found.flight, quick=True)
    if json:
        body = {"action": action, "flight": summary_to_json(found, judged)}
        print_json(CHANGE_SCHEMA, body)
    else:
        stdout.print(describe_change(action, found), markup=False, soft_wrap=True)
    return len(found.flight.areas)


def _build_note(reason: str | None) -> "OperatorNote":
    from tileferry.domain.tiles import OperatorNote
    from tileferry.entrypoints.cli.partition_options import get_operator_name, parse_reason

    return OperatorNote(
        by=get_operator_name(), reason=None if reason is None else parse_reason(reason)
    )
