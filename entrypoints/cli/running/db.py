"""The database's schema, shown and brought up to date."""

from pathlib import Path

import attrs
import typer

from tileferry.adapters.postgres import SchemaStatus, schema_status, upgrade
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.output import facts, opened, people, print_json


def upgraded(config: Path | None, *, json: bool) -> None:
    """Upgrade, and say from where to where."""
    with opened(config) as container:
        database = container.database()
        before = schema_status(database)
        after = upgrade(database)
    if json:
        print_json("tileferry.db.upgrade.v1", {"from": before.found, "to": after.found})
    elif before.is_current:
        people.print(f"The schema is at {after.found} already.")
    else:
        people.print(f"The schema went from {before.found or 'empty'} to {after.found}.")


def status(config: Path | None, *, json: bool) -> None:
    """Show the state; what cannot be used ends with an error."""
    with opened(config) as container:
        database = container.database()
        version = database.check_server()
        schema = schema_status(database)
    if json:
        body = {"server_version": version, "is_current": schema.is_current, **attrs.asdict(schema)}
        print_json("tileferry.db.status.v1", body)
    else:
        people.print(facts("Database", _rows(version, schema)))
    if not schema.is_current:
        raise typer.Exit(ExitCode.FATAL)


def _rows(version: str, status: SchemaStatus) -> dict[str, object]:
    return {
        "server": f"PostgreSQL {version}",
        "schema": status.found or "empty",
        "needed": status.needed,
        "verdict": "ready" if status.is_current else "run tileferry db upgrade",
    }
