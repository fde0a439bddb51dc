"""Bringing the schema to where this version of the code needs it.

Every command asks where it stands, which takes one statement; Alembic is imported by those that
change it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen
from sqlalchemy import Connection, text

from tileferry.adapters.postgres.database import Database
from tileferry.domain.errors import DatabaseError, InvalidValueError, Remedy
from tileferry.migrations import LOCATION, REVISIONS

if TYPE_CHECKING:
    from alembic.config import Config

# Two that upgrade one database at once take turns; the number only has to be ours.
_UPGRADE_LOCK = 7_411_223
# Alembic keeps what it is working on in globals.
_ALEMBIC = threading.Lock()


@frozen(kw_only=True)
class SchemaStatus:
    """Where the database's schema stands, and where it should."""

    found: str | None
    """``None`` for a database that has never been upgraded."""
    needed: str
    known: tuple[str, ...]
    """Every revision of this version, the first one first."""

    @property
    def is_current(self) -> bool:
        """Whether the code can work with it."""
        return self.found == self.needed

    @property
    def is_newer(self) -> bool:
        """Whether a later version of the code has upgraded it."""
        return self.found is not None and self.found not in self.known

    def check(self) -> None:
        """Refuse a schema that the code cannot work with."""
        if self.is_newer:
            raise DatabaseError(
                problem=f"the schema is at {self.found}; this version supports up to {self.needed}",
                remedy="use the newer version that upgraded it",
            )
        if not self.is_current:
            found = "empty" if self.found is None else f"at {self.found}"
            raise DatabaseError(
                problem=f"the schema is {found}; this version needs {self.needed}",
                remedy=Remedy.UPGRADE_DATABASE,
            )


def get_schema_status(database: Database) -> SchemaStatus:
    """Look where the schema stands."""
    with database.read_connection() as connection:
        return _read_status(connection)


def upgrade(database: Database, revision: str = "head") -> SchemaStatus:
    """Apply every migration up to ``revision``, all or none; return where the schema stands."""
    from alembic import command  # noqa: PLC0415  # slow, as above

    database.check_server()
    with _lock_schema(database) as connection:
        _run_migration(lambda: command.upgrade(_build_config(connection), revision))
        return _read_status(connection)


def downgrade(database: Database, revision: str) -> None:
    """Take migrations back down to ``revision``; for tests and for an operator who must."""
    from alembic import command  # noqa: PLC0415  # as above

    with _lock_schema(database) as connection:
        _run_migration(lambda: command.downgrade(_build_config(connection), revision))


@contextmanager
def _lock_schema(database: Database) -> Iterator[Connection]:
    """Hold the schema of a database that is not newer than we are, in one transaction."""
    with _ALEMBIC, database.transaction() as connection:
        # A large table takes its time to be changed, and whoever came first may be at it.
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        status = _read_status(connection)
        if status.is_newer:
            status.check()
        yield connection


def _run_migration(move: Callable[[], None]) -> None:
    from alembic.util import CommandError  # noqa: PLC0415  # as above

    try:
        move()
    except CommandError as error:
        raise InvalidValueError(
            field="revision",
            value=str(error),
            problem="is not a step that can be taken from here",
            remedy=f"this version knows {', '.join(REVISIONS)}",
        ) from error


def _read_status(connection: Connection) -> SchemaStatus:
    there = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar()
    found = None
    if there is not None:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return SchemaStatus(found=found, needed=REVISIONS[-1], known=REVISIONS)


def _build_config(connection: Connection) -> "Config":
    from alembic.config import Config  # noqa: PLC0415  # as above

    config = Config()
    # Alembic reads % in options as interpolation.
    config.set_main_option("script_location", str(LOCATION).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
