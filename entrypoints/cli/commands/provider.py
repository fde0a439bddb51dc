"""``tileferry provider``: a provider to download from and upload to, for the demo and for tests."""

import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.declaring import JsonFlag
from tileferry.entrypoints.cli.output import people, print_json

app = typer.Typer(
    name="provider",
    help="The reference provider: serves tiles, and misbehaves when told to.",
    no_args_is_help=True,
)
KEY_VARIABLE = "TILEFERRY_PROVIDER_API_KEY"
DEMO_KEY = "demo"
_KEY_BYTES_MAX = 4_096


def _needs_web() -> None:
    try:
        import tileferry.entrypoints.provider.serve  # noqa: F401  # an extra, perhaps missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tileferry"):
            raise
        raise InvalidValueError(
            field="provider",
            value=error.name,
            problem="this module is not installed",
            remedy="pip install 'tileferry[web]'",
        ) from error


@app.command("serve")
def serve_command(  # noqa: PLR0917  # typer takes options as arguments
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.")] = 8_460,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help=f"A file of mode 0600 with the API key; else {KEY_VARIABLE} is read."),
    ] = None,
    demo: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--demo", help=f"Without a key, use {DEMO_KEY!r}; loopback only.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="A PEM certificate; serves https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's PEM key.")] = None,
    page_size: Annotated[int, typer.Option(help="Tiles on a page of the listing.")] = 1_000,
    resolution: Annotated[
        str, typer.Option(help="Metres a pixel of every tile, or 'ground' for the true ones.")
    ] = "0.6",
    produced_at: Annotated[
        str | None, typer.Option(help="When tiles were produced; by default 30 days ago.")
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="name=rate, such as 503=0.1; may be repeated.")
    ] = None,
    faults_file: Annotated[Path | None, typer.Option(help="A JSON list of fault rules.")] = None,
    seed: Annotated[int, typer.Option(help="Changes which requests the rates hit.")] = 0,
    record: Annotated[
        Path | None, typer.Option(help="Append every request to this file, as JSON lines.")
    ] = None,
    json: JsonFlag = False,  # noqa: FBT002  # a flag
) -> None:
    """Serve tiles until Ctrl-C. Prints its address once it accepts connections."""
    _needs_web()
    from tileferry.entrypoints.provider.faults.scripts import (  # of the extra
        rule_of_flag,
        rules_of_file,
    )
    from tileferry.entrypoints.provider.serve import Address, ProviderServer  # as above
    from tileferry.entrypoints.provider.settings import ProviderSettings, recent  # as above

    address = Address(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    scripted = [] if faults_file is None else rules_of_file(faults_file)
    settings = ProviderSettings(
        api_key=_api_key(api_key_file, demo=demo, is_loopback=address.is_loopback),
        resolution_m_per_px=_resolution(resolution),
        produced_at=recent() if produced_at is None else _moment(produced_at),
        page_size=page_size,
        rules=(*scripted, *(rule_of_flag(text) for text in fault or ())),
        seed=seed,
        record=record,
    )

    def announce(url: str) -> None:
        if json:
            print_json("tileferry.provider.serve.v1", {"url": url, "pid": os.getpid()})
        else:
            typer.echo(url)
            typer.echo("Serving; Ctrl-C stops it.", err=True)
        sys.stdout.flush()

    ProviderServer(settings, address, announce).run()


@app.command("faults")
def faults_command(json: JsonFlag = False) -> None:  # noqa: FBT002  # a flag
    """List what the provider can be told to do wrong."""
    _needs_web()
    from tileferry.entrypoints.provider.faults import FAULTS  # of the extra

    if json:
        faults = [
            {"name": fault.name, "calls": sorted(fault.calls), "says": fault.says}
            for fault in FAULTS.values()
        ]
        print_json("tileferry.provider.faults.v1", {"faults": faults})
        return
    table = Table("fault", "happens to", "what it does", title="Faults", title_justify="left")
    for fault in FAULTS.values():
        table.add_row(fault.name, ", ".join(sorted(fault.calls)), fault.says)
    people.print(table)


def _api_key(file: Path | None, *, demo: bool, is_loopback: bool) -> str:
    if file is not None:
        return _key_in(file)
    key = os.environ.get(KEY_VARIABLE, "")
    if key:
        return key
    if demo and is_loopback:
        return DEMO_KEY
    problem = "is not set" if is_loopback else "must be set when others can reach the provider"
    raise InvalidValueError(
        field=KEY_VARIABLE,
        value="",
        problem=problem,
        remedy="set it, give --api-key-file, or use --demo on loopback",
    )


def _key_in(file: Path) -> str:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        with file.open("rb") as content:
            key = content.read(_KEY_BYTES_MAX).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or 'not plain text'}"
        raise InvalidValueError(field="--api-key-file", value=str(file), problem=problem) from None
    if mode & 0o077:
        raise InvalidValueError(
            field="--api-key-file",
            value=f"{file}, mode {mode:04o}",
            problem="others may read it",
            remedy="chmod 600",
        )
    if not key:
        raise InvalidValueError(field="--api-key-file", value=str(file), problem="is empty")
    return key


def _resolution(text: str) -> float | None:
    if text == "ground":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(
            field="--resolution",
            value=text,
            problem="is neither a number of metres nor 'ground'",
        ) from None


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(
            field="--produced-at",
            value=text,
            problem="is no time",
            remedy="write it as 2026-10-01 or 2026-10-01T12:00:00Z",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
