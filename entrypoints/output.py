"""How commands talk: one JSON object with a versioned schema, or something for people."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.container import Container

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="The configuration file.", dir_okay=False, exists=True),
]

people = Console(highlight=False)


@contextmanager
def opened(config_file: Path | None) -> Iterator[Container]:
    """Assemble the product for one command, and close it at the end."""
    container = Container(config=load_config(config_file))
    try:
        yield container
    finally:
        container.shutdown_resources()


def print_json(schema: str, body: Mapping[str, Any]) -> None:
    """Print one object; ``schema`` names its form and version."""
    typer.echo(json.dumps({"schema": schema, **body}, ensure_ascii=False))


def facts(title: str, rows: Mapping[str, object]) -> Table:
    """Lay out a few named facts."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE)
    table.show_header = False
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def in_bytes(count: int) -> str:
    """Write a number of bytes as people read it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004  # what the units are made of
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
