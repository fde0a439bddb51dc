"""``tileferry push``: send the tiles of a flight to another machine over ssh."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import FlightOption

app = declare_command()
SCHEMA = "tileferry.push.v1"


@app.command("push", epilog=format_examples("tileferry push pilot@aircraft.local --flight F7"))
def push_command(
    *,
    destination: Annotated[
        str, typer.Argument(metavar="USER@HOST", help="Where to send them, as for ssh.")
    ],
    flight: FlightOption,
    remote_command: Annotated[
        str,
        typer.Option(
            "--remote-command",
            metavar="COMMAND",
            help="How to start tileferry on the other machine.",
        ),
    ] = "tileferry",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Send another machine what it lacks of a flight, over ssh. Re-run to resume.

    The other machine needs tileferry, and this machine's key (`tileferry pack key`) in its
    pack.trusted_keys. It verifies and applies signed packs of 64 MiB, one after the other.

    Exit codes: 0 the flight is as ready there as here; 3 it is not, or tiles were refused; 7 the
    other machine cannot be reached, or refused a pack.
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tileferry.domain.text import printable
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.cli.signals import StopSignals

    if not _is_command(remote_command):
        raise typer.BadParameter(
            f"--remote-command is empty or has an open quote: {printable(remote_command)}"
        )
    progress = ItemProgress()
    with (
        open_installation(config, progress) as installation,
        TemporaryDirectory() as folder,
        StopSignals(),
        ProgressView(progress),
    ):
        report = installation.push_flight(
            flight, destination, folder=Path(folder), remote_command=remote_command
        )
    body = {
        "flight_id": flight,
        "destination": destination,
        "verdict": "GO" if report.is_go else "NO-GO",
        "packs": len(report.answers),
        "tiles_imported": sum(one.tiles_imported for one in report.answers),
        "bytes_imported": sum(one.bytes_imported for one in report.answers),
        "entries_refused": sum(one.entries_refused for one in report.answers),
    }
    if json:
        print_json(SCHEMA, body)
    else:
        from tileferry.domain.text import format_bytes

        rows = {
            "verdict there": body["verdict"],
            "tiles": f"{body['tiles_imported']:,}",
            "size": format_bytes(int(str(body["bytes_imported"]))),
            "refused": body["entries_refused"] or None,
        }
        shown = {name: value for name, value in rows.items() if value is not None}
        stdout.print(build_facts_table(f"Pushed flight {flight} to {destination}", shown))
    is_done = report.has_same_verdict and not body["entries_refused"]
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.PARTIAL)


def _is_command(text: str) -> bool:
    import shlex

    try:
        return bool(shlex.split(text))
    except ValueError:  # an open quote
        return False
