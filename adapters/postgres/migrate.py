"""Schema migrations: status, upgrade and downgrade.

Every command reads the status, with one statement. Alembic is slow to import, so only the functions
that change the schema import it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen

from tileferry.adapters.postgres.database import Database
from tileferry.domain.errors import DatabaseError, InvalidValueError, Remedy
from tileferry.migrations import LOCATION, REVISIONS

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

# Serializes upgrades of one database. The number is arbitrary but must be unique.
_UPGRADE_LOCK = 7_411_223
# Alembic keeps its current state in globals.
_ALEMBIC = threading.Lock()


@frozen(kw_only=True)
class SchemaStatus:
    """The revision of the database's schema and the one this version needs."""

    found: str | None
    """``None`` if the database has never been upgraded."""
    needed: str
    known: tuple[str, ...]
    """All revisions that this version knows, oldest first."""

    @property
    def is_current(self) -> bool:
        """Whether the schema is at the revision this version needs."""
        return self.found == self.needed

    @property
    def is_newer(self) -> bool:
        """Whether a later version upgraded the schema."""
        return self.found is not None and self.found not in self.known

    def check(self) -> None:
        """Raise unless the schema is current."""
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
    return _read_status(database.fetch_rows)


def upgrade(database: Database, revision: str = "head") -> SchemaStatus:
    """Apply all migrations up to ``revision`` in one transaction; return the new status."""
    from alembic import command  # noqa: PLC0415  # slow to import

    database.check_server()
    with _lock_schema(database) as connection:
        _run_migration(lambda: command.upgrade(_build_config(connection), revision))
        return _read_status(connection.exec_driver_sql)


def downgrade(database: Database, revision: str) -> None:
    """Revert migrations down to ``revision``; for tests and for recovery by an operator."""
    from alembic import command  # noqa: PLC0415  # as above

    with _lock_schema(database) as connection:
        _run_migration(lambda: command.downgrade(_build_config(connection), revision))


@contextmanager
def _lock_schema(database: Database) -> Iterator["Connection"]:
    """Lock the schema in one transaction; raise if a newer version upgraded it."""
    reached: list[str | None] = []

    def find_effect(connection: "Connection") -> bool:
        return _read_status(connection.exec_driver_sql).found == reached[0]

    with _ALEMBIC, database.transaction(find_effect=find_effect) as connection:
        # Changing a large table takes time, and another process may be upgrading already.
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
        status = _read_status(connection.exec_driver_sql)
        if status.is_newer:
            status.check()
        yield connection
        reached.append(_read_status(connection.exec_driver_sql).found)
    database.engine.dispose()  # what a connection knows of the schema is from before


def _run_migration(move: Callable[[], None]) -> None:
    from alembic.util import CommandError  # noqa: PLC0415  # as above

    try:
        move()
    except CommandError as error:
        raise InvalidValueError(
            field="revision",
            value=str(error),
            problem="cannot be reached from the current schema",
            remedy=f"use one of {', '.join(REVISIONS)}",
        ) from error


def _read_status(fetch_rows: Callable[[str], Iterable[Any]]) -> SchemaStatus:
    ((table,),) = fetch_rows("SELECT to_regclass('alembic_version')::text")
    rows = [] if table is None else [*fetch_rows("SELECT version_num FROM alembic_version")]
    return SchemaStatus(found=rows[0][0] if rows else None, needed=REVISIONS[-1], known=REVISIONS)


def _build_config(connection: "Connection") -> "Config":
    from alembic.config import Config  # noqa: PLC0415  # as above

    config = Config()
    # Alembic treats % in options as interpolation.
    config.set_main_option("script_location", str(LOCATION).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
