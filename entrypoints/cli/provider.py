"""``tileferry provider``: a provider for the demo and for tests."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.command_group import JsonFlag, declare_group, format_examples
from tileferry.entrypoints.cli.option_types import TlsCertOption, TlsKeyOption

app = declare_group("Run the reference provider, with faults on request.")
DEMO_KEY = "demo"


# serve


@app.command(
    "serve",
    epilog=format_examples(
        "tileferry provider serve --demo",
        "tileferry provider serve --demo --fault 503=0.02 --fault stall=0.01",
    ),
)
def serve_command(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port to listen on; 0 picks a free one.")
    ] = 8_460,
    demo: Annotated[
        bool, typer.Option("--demo", help="Use the API key 'demo' if none is set; loopback only.")
    ] = False,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="File of mode 0600 with the API key (default: TILEFERRY_PROVIDER_API_KEY).",
        ),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    page_size: Annotated[
        int, typer.Option("--page-size", metavar="N", help="Tiles per page of the listing.")
    ] = 1_000,
    resolution: Annotated[
        str,
        typer.Option(
            "--resolution",
            metavar="M",
            help="Meters per pixel of every tile, or 'ground' for the true value.",
        ),
    ] = "0.6",
    produced_at: Annotated[
        str | None,
        typer.Option(
            "--produced-at",
            metavar="DATE",
            help="When the tiles were produced (default: 30 days ago).",
        ),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="NAME=RATE",
            help="Inject a fault at a rate, such as 503=0.1; `tileferry provider faults` lists all."
            " Repeatable.",
        ),
    ] = None,
    faults_file: Annotated[
        Path | None,
        typer.Option("--faults-file", metavar="FILE", help="JSON list of fault rules."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed that selects which requests fail.")
    ] = 0,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="FILE", help="Append every request to FILE, as JSON lines."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Serve tiles until Ctrl-C. Prints its address once it accepts connections.

    Ignores the configuration, which belongs to the client side.
    """
    from tileferry.entrypoints.cli.output import print_json
    from tileferry.entrypoints.cli.parsing import parse_day_or_time
    from tileferry.entrypoints.config.loader import check_environment
    from tileferry.entrypoints.extras import require_extra

    check_environment()
    with require_extra("web", needed_by="provider"):
        from tileferry.entrypoints.http_server import ListenAddress
        from tileferry.entrypoints.provider.app import (
            XYZ_ROUTE,
            ProviderSettings,
            get_default_produced_at,
        )
        from tileferry.entrypoints.provider.faults.rules import parse_flag, read_script
        from tileferry.entrypoints.provider.server import ProviderServer

    address = ListenAddress(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    scripted = [] if faults_file is None else read_script(faults_file)
    settings = ProviderSettings(
        api_key=_read_api_key(api_key_file, demo=demo, is_loopback=address.is_loopback),
        resolution_m_per_px=_parse_resolution(resolution),
        produced_at=get_default_produced_at()
        if produced_at is None
        else parse_day_or_time(produced_at, option="--produced-at"),
        page_size=page_size,
        rules=(*scripted, *(parse_flag(text) for text in fault or ())),
        seed=seed,
        record=record,
    )

    def announce(url: str) -> None:
        template = f"{url}{XYZ_ROUTE}"
        if json:
            body = {"url": url, "xyz_url_template": template, "pid": os.getpid()}
            print_json("tileferry.provider.serve.v1", body)
        else:
            typer.echo(url)
            typer.echo(f"Serving; also as a plain tile server at {template}", err=True)
            typer.echo("Press Ctrl-C to stop.", err=True)
        sys.stdout.flush()

    ProviderServer(settings, address, announce).run()


def _read_api_key(file: Path | None, *, demo: bool, is_loopback: bool) -> str:
    from tileferry.domain.errors import InvalidValueError
    from tileferry.entrypoints.config.loader import read_key_file
    from tileferry.entrypoints.config.setting_names import PROVIDER_KEY_VARIABLE

    if file is not None:
        return read_key_file(file, field="--api-key-file")
    key = os.environ.get(PROVIDER_KEY_VARIABLE, "")
    if key:
        return key
    if demo and is_loopback:
        return DEMO_KEY
    problem = "is not set" if is_loopback else "must be set when others can reach the provider"
    raise InvalidValueError(
        field=PROVIDER_KEY_VARIABLE,
        value="",
        problem=problem,
        remedy="set it, give --api-key-file, or use --demo on loopback",
    )


def _parse_resolution(text: str) -> float | None:
    from tileferry.domain.errors import InvalidValueError

    if text == "ground":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(
            field="--resolution",
            value=text,
            problem="is neither a number of meters nor 'ground'",
        ) from None


# faults


@app.command(
    "faults",
    epilog=format_examples("tileferry provider faults", "tileferry provider faults --json"),
)
def faults_command(*, json: JsonFlag = False) -> None:
    """List the faults that the provider can inject."""
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.cli.tables import FittingTable
    from tileferry.entrypoints.config.loader import check_environment
    from tileferry.entrypoints.extras import require_extra

    check_environment()
    with require_extra("web", needed_by="provider"):
        from tileferry.entrypoints.provider.faults import FAULTS

    if json:
        faults = [
            {"name": fault.name, "calls": sorted(fault.calls), "says": fault.says}
            for fault in FAULTS.values()
        ]
        print_json("tileferry.provider.faults.v1", {"faults": faults})
        return
    table = FittingTable(title="Faults", title_justify="left", drop=("affects",))
    table.add_column("fault", no_wrap=True)
    for heading in ("affects", "effect"):
        table.add_column(heading, overflow="fold")
    for fault in FAULTS.values():
        table.add_row(fault.name, ", ".join(sorted(fault.calls)), fault.says)
    stdout.print(table)
