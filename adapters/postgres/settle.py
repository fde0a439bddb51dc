"""One statement, one round trip, and the right answer though the connection was lost."""

import time
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.errors import database_error, sqlstate_of, translated
from tileferry.domain.errors import DatabaseError

_PAUSE_S = 0.1
# Classes of SQLSTATE that say: not now. No code at all: the server did not speak.
_NOT_NOW = {None, "08", "53", "55", "57"}


@frozen(kw_only=True)
class Settled:
    """What a statement returned."""

    row: Row[Any] | None
    repeated: bool
    """Whether the statement may have counted before, with nobody to hear of it."""


def settle(database: Database, statement: str, parameters: Mapping[str, object]) -> Settled:
    """Run one statement of the driver's form as a transaction of its own.

    A connection that is lost leaves open whether it counted. Then the very same statement is run
    again, as soon as the server is there: it must look for what it did itself, in one step with
    doing it. So it counts once, even when the first one is still at work on the server.
    """
    with translated():
        try:
            return Settled(row=_run(database, statement, parameters), repeated=False)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            lost = error
        return Settled(row=_run_again(database, statement, parameters, lost), repeated=True)


def _run(database: Database, statement: str, parameters: Mapping[str, object]) -> Row[Any] | None:
    with database.engine.connect() as connection:
        alone = connection.execution_options(isolation_level="AUTOCOMMIT")
        return alone.exec_driver_sql(statement, dict(parameters)).first()


def _run_again(
    database: Database, statement: str, parameters: Mapping[str, object], lost: DBAPIError
) -> Row[Any] | None:
    started_s = time.monotonic()
    while time.monotonic() - started_s < database.resolve_s:
        try:
            return _run(database, statement, parameters)
        except DBAPIError as error:
            if not (error.connection_invalidated or _says_not_now(error)):
                raise
        time.sleep(_PAUSE_S)
    raise DatabaseError(
        problem="the connection was lost during a change, and the server does not say whether it "
        f"counted: {database_error(lost).problem}",
        remedy="look at the data once the server is back, before doing it again",
    ) from lost


def _says_not_now(error: DBAPIError) -> bool:
    code = sqlstate_of(error)
    return (None if code is None else code[:2]) in _NOT_NOW
