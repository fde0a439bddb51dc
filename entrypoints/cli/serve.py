"""``tileferry serve``: the map server and the console."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import TlsCertOption, TlsKeyOption

app = declare_command()


@app.command(
    "serve",
    epilog=format_examples(
        "tileferry serve",
        "tileferry serve --port 9000 --read-only",
        "tileferry serve --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem",
    ),
)
def serve_command(
    *,
    config: ConfigFile = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on (default: serve.host, 127.0.0.1); beyond loopback, a token"
            " and TLS are required.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            help="Port to listen on (default: serve.port, 8080); 0 picks a free one.",
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every change from the console.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="File of mode 0600 with the operators' token."
        ),
    ] = None,
    viewer_token_file: Annotated[
        Path | None,
        typer.Option(
            "--viewer-token-file",
            metavar="FILE",
            help="File of mode 0600 with the token of viewers, who cannot change anything.",
        ),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    json: JsonFlag = False,
) -> None:
    """Serve the cache as a map, and the console, to browsers and ground stations.

    Prints its address once it accepts connections, and runs until Ctrl-C. Tiles are at
    /tiles/SOURCE/Z/X/Y, with TileJSON and WMTS beside them; `merged` is the freshest tile of any
    source. If the database becomes unreachable, pages fail until it is back.

    Exit codes: 0 stopped by a signal; 2 invalid setting; 4 refused, because other machines could
    connect without a token and TLS; 7 the database or the cache cannot be opened.
    """
    from attrs import evolve

    from tileferry.entrypoints.cli.output import print_json, stderr
    from tileferry.entrypoints.cli.partition_options import get_operator_name
    from tileferry.entrypoints.config.loader import load_config
    from tileferry.entrypoints.extras import require_extra
    from tileferry.entrypoints.installation import Installation

    with require_extra("web", needed_by="serve"):
        from tileferry.entrypoints.web.server import WebServer, build_listen_address, read_tokens

    loaded = load_config(config)
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "read_only": read_only or None,
        "token_file": token_file,
        "viewer_token_file": viewer_token_file,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    given = {name: value for name, value in options.items() if value is not None}
    settings = evolve(loaded, serve=evolve(loaded.serve, **given))
    build_listen_address(settings)  # before the database is opened, which may take a while
    read_tokens(settings)

    def announce(url: str) -> None:
        if json:
            body = {"url": url, "tiles_url_template": f"{url}{_TEMPLATE}", "pid": os.getpid()}
            print_json("tileferry.serve.v1", body)
        else:
            typer.echo(url)
            typer.echo(f"Serving; tiles at {url}{_TEMPLATE}", err=True)
            typer.echo("Press Ctrl-C to stop.", err=True)
        sys.stdout.flush()

    with Installation(settings, log_console=stderr) as installation:
        installation.set_patience(_PATIENCE_S)
        operator = get_operator_name()
        WebServer(installation, operator=operator, announce=announce, config_file=config).run()


_TEMPLATE = "/tiles/merged/{z}/{x}/{y}"
_PATIENCE_S = 2.0
"""How long a request waits for an unreachable database."""
