"""``tileferry db``: the database's schema."""

import attrs
import typer

from tileferry.adapters.postgres import SchemaStatus, schema_status, upgrade
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.output import ConfigFile, JsonFlag, facts, opened, people, print_json

app = typer.Typer(
    name="db",
    help="The database: its schema and its state.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("upgrade")
def upgrade_command(config: ConfigFile = None, json: JsonFlag = False) -> None:  # noqa: FBT002  # a flag
    """Bring the database's schema to what this version needs. Running it again is harmless."""
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


@app.command("status")
def status_command(config: ConfigFile = None, json: JsonFlag = False) -> None:  # noqa: FBT002  # a flag
    """Show the server's version and where the schema stands. Exit code 7 when it cannot be used."""
    with opened(config) as container:
        database = container.database()
        version = database.check_server()
        status = schema_status(database)
    if json:
        body = {"server_version": version, "is_current": status.is_current, **attrs.asdict(status)}
        print_json("tileferry.db.status.v1", body)
    else:
        people.print(facts("Database", _rows(version, status)))
    if not status.is_current:
        raise typer.Exit(ExitCode.FATAL)


def _rows(version: str, status: SchemaStatus) -> dict[str, object]:
    return {
        "server": f"PostgreSQL {version}",
        "schema": status.found or "empty",
        "needed": status.needed,
        "verdict": "ready" if status.is_current else "run tileferry db upgrade",
    }
