"""``tileferry pack``: carry the tiles of a flight to a machine without a link."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import FlightOption, OptionalFlight, WaitOption

if TYPE_CHECKING:
    from tileferry.adapters.filesystem.packs import FilePack
    from tileferry.application.packs import AppliedPack, PackReport

app = declare_group("Carry the tiles of a flight to another machine, signed and verified.")
CREATE_SCHEMA = "tileferry.pack.create.v1"
APPLY_SCHEMA = "tileferry.pack.apply.v1"
KEY_SCHEMA = "tileferry.pack.key.v1"
_STREAM = Path("-")
_CHUNK_BYTES = 1024 * 1024


@app.command(
    "create",
    epilog=format_examples(
        "tileferry pack create F7.pack --flight F7",
        "tileferry pack create F7-2.pack --flight F7 --since F7.pack",
        "tileferry pack create F7-3.pack --flight F7 --max-size 4GB",
    ),
)
def create_command(
    *,
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="File to create.")],
    flight: FlightOption,
    since: Annotated[
        list[Path] | None,
        typer.Option(
            "--since",
            metavar="PACK",
            help="Leave out the tiles in this pack or inventory, which the other machine has."
            " Repeatable.",
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            help="End the pack before this size, such as 4GB for a FAT32 stick; the next one, with"
            " --since, continues it.",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing pack.")] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Write the tiles of a flight to one signed file.

    It has the flight's areas, its pin, every tile with its facts, and the tiles that the provider
    does not have. Every tile is verified when it is read, and the finished pack once more.

    Exit codes: 0 done; 3 --max-size was reached; 4 a tile is damaged, or DEST exists.
    """
    from tileferry.adapters.filesystem.packs import FilePack, FilePackTarget
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json
    from tileferry.entrypoints.cli.parsing import parse_size
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.cli.signals import StopSignals

    bytes_max = None if max_size is None else parse_size(max_size, option="--max-size")
    progress, stop = ItemProgress(), StopSignals()
    with open_installation(config, progress) as installation, stop, ProgressView(progress):
        report = installation.packs.create(
            flight,
            FilePackTarget(path=dest.absolute(), replace=replace),
            [FilePack(path, check=stop.check) for path in since or ()],
            bytes_max=bytes_max,
        )
    if json:
        print_json(CREATE_SCHEMA, {"path": str(dest), **_report_to_json(report)})
    else:
        _print_created(report, dest)
    raise typer.Exit(ExitCode.DONE if report.is_complete else ExitCode.PARTIAL)


@app.command(
    "inventory",
    epilog=format_examples(
        "tileferry pack inventory have.pack --flight F7",
        "tileferry pack inventory have.pack --like F7.pack --replace",
    ),
)
def inventory_command(
    *,
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="File to create; - for stdout.")],
    flight: OptionalFlight = None,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            metavar="PACK",
            help="Pack whose areas are listed, for a flight that this machine does not know; - for"
            " stdin.",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List the tiles of a flight that this machine has.

    `pack create --since` on another machine leaves these out.

    Exit codes: 0 done; 4 DEST exists.
    """
    import shutil
    from tempfile import TemporaryDirectory

    from tileferry.adapters.filesystem.packs import FilePackTarget
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    if (flight is None) == (like is None):
        raise typer.BadParameter("give either --flight or --like")
    if json and dest == _STREAM:
        raise typer.BadParameter("DEST - and --json both write to stdout; use one of them")
    with open_installation(config) as installation, TemporaryDirectory() as folder:
        packs = installation.packs
        if like is not None:
            with _open_pack(like, Path(folder)) as pack:
                known = pack.read_header().flight
        else:
            known = packs.get_flight(flight or "")
        target = dest.absolute() if dest != _STREAM else Path(folder) / "inventory"
        report = packs.create_inventory(known, FilePackTarget(path=target, replace=replace))
        if json:
            print_json(CREATE_SCHEMA, {"path": str(dest), **_report_to_json(report)})
        elif dest == _STREAM:
            with target.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
        else:
            stdout.print(f"Created {dest}: {report.tiles:,} tiles of flight {known.flight_id}.")


@app.command(
    "apply",
    epilog=format_examples("tileferry pack apply F7.pack", "tileferry pack apply F7.pack --json"),
)
def apply_command(
    *,
    src: Annotated[Path, typer.Argument(metavar="SRC", help="Pack to apply; - for stdin.")],
    wait: WaitOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Verify a pack, store its tiles, and judge the flight.

    A pack is refused if any byte is wrong, or if its key is not one of pack.trusted_keys. Applying
    it again changes nothing; after an interruption it continues.

    Exit codes: 0 the flight is as ready as where the pack was created; 3 it is not, or tiles were
    refused; 4 the pack is damaged or not trusted, or the cache is in use or too small.
    """
    from tempfile import TemporaryDirectory

    from tileferry.domain.tiles import OperatorNote
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import hold_cache, open_installation, print_json
    from tileferry.entrypoints.cli.partition_options import get_operator_name
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.cli.signals import StopSignals

    stop = StopSignals()
    progress = ItemProgress(stop)
    with (
        open_installation(config, progress) as installation,
        hold_cache(installation, wait),
        TemporaryDirectory() as folder,
        _open_pack(src, Path(folder)) as pack,
        stop,
    ):
        packs = installation.packs
        stop.defer()
        with ProgressView(progress):
            applied = packs.apply(pack, OperatorNote(by=get_operator_name()))
    refused = sum(one.entries_refused for one in applied.imports)
    if json:
        print_json(APPLY_SCHEMA, {"path": str(src), **_applied_to_json(applied)})
    else:
        _print_applied(applied)
    is_done = applied.has_same_verdict and not refused
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.PARTIAL)


@app.command("key", epilog=format_examples("tileferry pack key"))
def key_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the public key with which this machine signs packs.

    On a machine that applies them, add it to pack.trusted_keys.
    """
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    with open_installation(config) as installation:
        key = installation.packs.signer.public_key
    if json:
        print_json(KEY_SCHEMA, {"public_key": key})
    else:
        stdout.print(key, soft_wrap=True)


@contextmanager
def _open_pack(path: Path, folder: Path) -> Iterator["FilePack"]:
    """Yield a pack; one from stdin is copied to a temporary file first."""
    from tileferry.adapters.filesystem.packs import FilePack

    if path != _STREAM:
        yield FilePack(path)
        return
    copy = folder / "pack"
    with copy.open("wb") as file:
        while chunk := sys.stdin.buffer.read(_CHUNK_BYTES):
            file.write(chunk)
    yield FilePack(copy)


def _report_to_json(report: "PackReport") -> dict[str, Any]:
    return {
        "flight_id": report.header.flight.flight_id,
        "verdict": _name_verdict(is_go=report.header.is_go),
        "sha256": report.sha256,
        "public_key": report.header.public_key,
        "tiles": report.tiles,
        "bytes_packed": report.bytes_packed,
        "tiles_known": report.tiles_known,
        "complete": report.is_complete,
    }


def _applied_to_json(applied: "AppliedPack") -> dict[str, Any]:
    return {
        "flight_id": applied.header.flight.flight_id,
        "verdict": _name_verdict(is_go=applied.judged.verdict.is_go),
        "verdict_at_origin": _name_verdict(is_go=applied.header.is_go),
        "sha256": applied.sha256,
        "tiles_imported": sum(one.tiles_imported for one in applied.imports),
        "tiles_unchanged": sum(one.tiles_unchanged for one in applied.imports),
        "bytes_imported": sum(one.bytes_imported for one in applied.imports),
        "entries_refused": sum(one.entries_refused for one in applied.imports),
    }


def _name_verdict(*, is_go: bool) -> str:
    return "GO" if is_go else "NO-GO"


def _print_created(report: "PackReport", dest: Path) -> None:
    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.output import build_facts_table, stdout

    rows: dict[str, object] = {
        "flight": report.header.flight.flight_id,
        "verdict here": _name_verdict(is_go=report.header.is_go),
        "tiles": f"{report.tiles:,}",
        "size": format_bytes(report.bytes_packed),
        "signed by": report.header.public_key[:16] + "…",
    }
    if report.tiles_known:
        rows["left out"] = f"{report.tiles_known:,} tiles that the other machine has"
    stdout.print(build_facts_table(f"Created {dest}", rows))
    if not report.is_complete:
        stdout.print(f"Tiles remain. Continue with: tileferry pack create … --since {dest}")


def _print_applied(applied: "AppliedPack") -> None:
    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.output import build_facts_table, stdout

    found = _applied_to_json(applied)
    rows: dict[str, object] = {
        "verdict": found["verdict"],
        "verdict at the origin": found["verdict_at_origin"],
        "imported": f"{found['tiles_imported']:,}",
        "size": format_bytes(found["bytes_imported"]),
        "already in the cache": found["tiles_unchanged"],
        "refused": found["entries_refused"],
    }
    flight = applied.header.flight.flight_id
    shown = {name: value for name, value in rows.items() if value}
    stdout.print(build_facts_table(f"Applied a pack of flight {flight}", shown))
    if not applied.has_same_verdict:
        stdout.print(f"To see why: tileferry cache verify --flight {flight}")
