"""The reference provider, served; and the faults that it knows, listed."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from attrs import frozen
from rich.table import Table

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.options.times import day_or_moment_of
from tileferry.entrypoints.cli.output import people, print_json
from tileferry.entrypoints.config.api_key import key_in
from tileferry.entrypoints.config.names import PROVIDER_KEY_VARIABLE
from tileferry.entrypoints.provider.app import PLAIN
from tileferry.entrypoints.provider.faults import FAULTS
from tileferry.entrypoints.provider.faults.scripts import rule_of_flag, rules_of_file
from tileferry.entrypoints.provider.serve import Address, ProviderServer
from tileferry.entrypoints.provider.settings import ProviderSettings, recent

DEMO_KEY = "demo"


# serve


@frozen(kw_only=True)
class Asked:
    """What the operator wants to be served, where, and what shall go wrong."""

    host: str
    port: int
    api_key_file: Path | None
    demo: bool
    tls_cert: Path | None
    tls_key: Path | None
    page_size: int
    resolution: str
    produced_at: str | None
    faults: Sequence[str]
    faults_file: Path | None
    seed: int
    record: Path | None


def served(asked: Asked, *, json: bool) -> None:
    """Serve until somebody interrupts; the address is printed once it accepts connections."""
    address = Address(
        host=asked.host, port=asked.port, tls_cert=asked.tls_cert, tls_key=asked.tls_key
    )
    scripted = [] if asked.faults_file is None else rules_of_file(asked.faults_file)
    settings = ProviderSettings(
        api_key=_api_key(asked.api_key_file, demo=asked.demo, is_loopback=address.is_loopback),
        resolution_m_per_px=_resolution(asked.resolution),
        produced_at=recent()
        if asked.produced_at is None
        else day_or_moment_of(asked.produced_at, option="--produced-at"),
        page_size=asked.page_size,
        rules=(*scripted, *(rule_of_flag(text) for text in asked.faults)),
        seed=asked.seed,
        record=asked.record,
    )

    def announce(url: str) -> None:
        plain = f"{url}{PLAIN}"
        if json:
            told = {"url": url, "xyz_url_template": plain, "pid": os.getpid()}
            print_json("tileferry.provider.serve.v1", told)
        else:
            typer.echo(url)
            typer.echo(f"Serving, also as a plain tile server: {plain}", err=True)
            typer.echo("Ctrl-C stops it.", err=True)
        sys.stdout.flush()

    ProviderServer(settings, address, announce).run()


def _api_key(file: Path | None, *, demo: bool, is_loopback: bool) -> str:
    if file is not None:
        return key_in(file, field="--api-key-file")
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


# faults


def listed_faults(*, json: bool) -> None:
    """List what it can be told to do wrong."""
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
