"""``tileferry provider``: a provider to download from and upload to, for the demo and for tests."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import JsonFlag, examples, group

app = group("The reference provider: serves tiles, and misbehaves when told to.")


# serve


@app.command(
    "serve",
    epilog=examples(
        "tileferry provider serve --demo",
        "tileferry provider serve --demo --fault 503=0.02 --fault stall=0.01",
    ),
)
def serve_command(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="The port; 0 takes any that is free.")
    ] = 8_460,
    demo: Annotated[
        bool, typer.Option("--demo", help="Without a key, use 'demo'; loopback only.")
    ] = False,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="A file of mode 0600 with the API key; else TILEFERRY_PROVIDER_API_KEY is read.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="A PEM certificate; serves https."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's PEM key.")
    ] = None,
    page_size: Annotated[
        int, typer.Option("--page-size", metavar="N", help="Tiles on a page of the listing.")
    ] = 1_000,
    resolution: Annotated[
        str,
        typer.Option(
            "--resolution",
            metavar="M",
            help="Metres a pixel of every tile, or 'ground' for the true ones.",
        ),
    ] = "0.6",
    produced_at: Annotated[
        str | None,
        typer.Option(
            "--produced-at",
            metavar="DATE",
            help="When the tiles were produced; by default 30 days ago.",
        ),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="NAME=RATE",
            help="What goes wrong and how often, such as 503=0.1; `tileferry provider faults`"
            " lists all. May be repeated.",
        ),
    ] = None,
    faults_file: Annotated[
        Path | None,
        typer.Option("--faults-file", metavar="FILE", help="A JSON list of fault rules."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Changes which requests the rates hit.")
    ] = 0,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="FILE", help="Append every request to this file, as JSON lines."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Serve tiles until Ctrl-C. Prints its address once it accepts connections.

    Nothing is read from the configuration: it is the other side.
    """
    from tileferry.entrypoints.cli.running.extras import extra

    with extra("web", needed_by="provider"):
        from tileferry.entrypoints.cli.running import provider

    asked = provider.Asked(
        host=host,
        port=port,
        api_key_file=api_key_file,
        demo=demo,
        tls_cert=tls_cert,
        tls_key=tls_key,
        page_size=page_size,
        resolution=resolution,
        produced_at=produced_at,
        faults=fault or (),
        faults_file=faults_file,
        seed=seed,
        record=record,
    )
    provider.served(asked, json=json)


# faults


@app.command(
    "faults", epilog=examples("tileferry provider faults", "tileferry provider faults --json")
)
def faults_command(*, json: JsonFlag = False) -> None:
    """List what the provider can be told to do wrong."""
    from tileferry.entrypoints.cli.running.extras import extra

    with extra("web", needed_by="provider"):
        from tileferry.entrypoints.cli.running import provider

    provider.listed_faults(json=json)
