"""``tileferry db``: the database schema, the embedded server, and psql."""

from typing import TYPE_CHECKING, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)

if TYPE_CHECKING:
    from tileferry.adapters.postgres import PsqlCommand, ServerStatus

app = declare_group("Upgrade the schema, start and stop the embedded server, or open psql.")


@app.command("upgrade", epilog=format_examples("tileferry db upgrade"))
def upgrade_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Upgrade the database schema to this version. Safe to run repeatedly."""
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    with open_installation(config) as installation:
        before = installation.get_schema_status()
        after = installation.upgrade_database()
    if json:
        print_json("tileferry.db.upgrade.v1", {"from": before.found, "to": after.found})
    elif before.is_current:
        stdout.print(f"The schema is already at {after.found}.")
    else:
        stdout.print(f"Upgraded the schema from {before.found or 'empty'} to {after.found}.")


@app.command("status", epilog=format_examples("tileferry db status", "tileferry db status --json"))
def status_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the server and the schema version. Exit code 7 if the schema is unusable.

    A stopped embedded server is started for the duration of the command.
    """
    from attrs import asdict

    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )

    with open_installation(config) as installation:
        embedded = installation.find_server_status()
        version = installation.get_server_version()
        schema = installation.get_schema_status()
    if json:
        body = {
            "server_version": version,
            "is_current": schema.is_current,
            **asdict(schema),
            "embedded": None if embedded is None else _status_to_json(embedded),
        }
        print_json("tileferry.db.status.v1", body)
    else:
        rows = {
            "server": f"PostgreSQL {version}",
            **({} if embedded is None else _describe_status(embedded)),
            "schema": schema.found or "empty",
            "needed": schema.needed,
            "verdict": "ready" if schema.is_current else "outdated; run tileferry db upgrade",
        }
        stdout.print(build_facts_table("Database", rows))
    if not schema.is_current:
        raise typer.Exit(ExitCode.FATAL)


@app.command("start", epilog=format_examples("tileferry db start"))
def start_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Start the embedded server and keep it running.

    Other commands then connect to it; otherwise, each command starts and stops it. `tileferry db
    stop` stops it.
    """
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )

    with open_installation(config) as installation:
        status = installation.start_server()
    if json:
        print_json("tileferry.db.start.v1", {"embedded": _status_to_json(status)})
    else:
        stdout.print(build_facts_table("Database", _describe_status(status)))


@app.command("stop", epilog=format_examples("tileferry db stop"))
def stop_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Stop the embedded server. Exit code 4 if a process, such as a worker, uses it."""
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    with open_installation(config) as installation:
        stopped = installation.stop_server()
    if json:
        print_json("tileferry.db.stop.v1", {"stopped": stopped})
    else:
        stdout.print("Stopped the embedded server." if stopped else "The server was not running.")


def _status_to_json(status: "ServerStatus") -> dict[str, Any]:
    return {
        "data_dir": str(status.data_dir),
        "state": status.state,
        "pid": status.pid,
        "kept": status.kept,
        "users": status.users,
    }


def _describe_status(status: "ServerStatus") -> dict[str, str]:
    return {
        "data": str(status.data_dir),
        "state": status.describe(),
        "used by": f"{status.users} process{'' if status.users == 1 else 'es'}",
    }


@app.command("shell", epilog=format_examples("tileferry db shell"))
def shell_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Open psql on the configured database, embedded or not. With --json, show how to connect.

    Statements can be piped in; the first error then ends the command with exit code 7.
    """
    import sys

    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json

    with open_installation(config) as installation:
        psql = installation.build_psql_command(stop_on_error=not sys.stdin.isatty())
        installation.get_server_version()  # fail with our own message if it cannot be reached
        if json:
            print_json(
                "tileferry.db.shell.v1",
                {
                    "program": str(psql.program),
                    "server": psql.server,
                    "database": psql.database,
                    "user": psql.environment.get("PGUSER"),
                },
            )
            return
        if _run_psql(psql):
            raise typer.Exit(ExitCode.FATAL)


def _run_psql(psql: "PsqlCommand") -> int:
    """Run psql in this terminal, which handles Ctrl-C itself, and return its exit code."""
    import os
    import signal
    import subprocess

    # A handler of our own keeps this process alive and is not inherited, unlike SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        return subprocess.run(  # noqa: S603  # psql, with arguments of our own
            [psql.program, *psql.arguments],
            env={**os.environ, **psql.environment},
            check=False,
        ).returncode
    finally:
        signal.signal(signal.SIGINT, before)
