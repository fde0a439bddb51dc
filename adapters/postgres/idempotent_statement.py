"""One statement as its own transaction, repeated if its connection is lost."""

import time
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.engine import disable_transactions
from tileferry.adapters.postgres.errors import (
    database_error,
    get_sqlstate,
    translate_database_errors,
)
from tileferry.domain.errors import DatabaseError

_REPEAT_PAUSE_S = 0.1
# SQLSTATE classes of temporary failures. ``None``: the error did not come from the server.
_TRANSIENT_CLASSES = {None, "08", "53", "55", "57"}


@frozen(kw_only=True)
class StatementResult:
    """The result of ``execute_idempotent``."""

    row: Row[Any] | None
    repeated: bool
    """Whether the statement was run again, so an earlier execution may have taken effect."""


def execute_idempotent(
    database: Database, statement: str, parameters: Mapping[str, object]
) -> StatementResult:
    """Run one statement as its own transaction; repeat it if the connection is lost.

    The statement uses the driver's parameter style. If it changes rows, it must select ``DURABLE``:
    without a transaction block, nothing else can make its commit durable.

    After a lost connection it is unknown whether the statement took effect. The same statement is
    run again once the server is reachable. The statement itself must detect its own earlier
    execution atomically; then it takes effect once, even if the first execution is still running on
    the server.
    """
    with translate_database_errors():
        try:
            return StatementResult(
                row=_execute_statement(database, statement, parameters), repeated=False
            )
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            lost = error
        return StatementResult(
            row=_repeat_statement(database, statement, parameters, lost), repeated=True
        )


def _execute_statement(
    database: Database, statement: str, parameters: Mapping[str, object]
) -> Row[Any] | None:
    with database.engine.connect() as connection:
        alone = disable_transactions(connection)
        row = alone.exec_driver_sql(statement, dict(parameters)).first()
        alone.commit()
        return row


def _repeat_statement(
    database: Database, statement: str, parameters: Mapping[str, object], lost: DBAPIError
) -> Row[Any] | None:
    started_s = time.monotonic()
    while time.monotonic() - started_s < database.get_resolve_limit_s():
        try:
            return _execute_statement(database, statement, parameters)
        except DBAPIError as error:
            if not (error.connection_invalidated or _is_transient(error)):
                raise
        time.sleep(_REPEAT_PAUSE_S)
    raise DatabaseError(
        problem="the connection was lost during a change; it is unknown whether it took effect: "
        f"{database_error(lost).problem}",
        remedy="check the data once the server is back, before you repeat the operation",
    ) from lost


def _is_transient(error: DBAPIError) -> bool:
    code = get_sqlstate(error)
    return (None if code is None else code[:2]) in _TRANSIENT_CLASSES
