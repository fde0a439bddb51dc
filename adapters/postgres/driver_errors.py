"""The driver's errors as ``DatabaseError`` with a remedy."""

import re
from collections.abc import Mapping

from psycopg import Error as DriverError
from psycopg import InterfaceError, OperationalError

from tileferry.domain.errors import DatabaseError, Remedy

_UPGRADE = Remedy.UPGRADE_DATABASE
DEFECT = "this is a defect; please report it"
_AGAIN = "run again; if it happens again, see the server's log"
_LOGIN = "check the user and password in TILEFERRY_DATABASE_URL"
_NAME = "create the database, or correct its name in TILEFERRY_DATABASE_URL"
_CONNECTIONS = "close other connections, or raise max_connections on the server"
_START = "start the server, or correct TILEFERRY_DATABASE_URL; without it an embedded one is used"
_RAISE = "in TILEFERRY_DATABASE_URL, such as ?options=-c%20{0}%3D5min"
_STARTUP = (
    "a pooler refuses ?options= in TILEFERRY_DATABASE_URL; set it for the user instead:"
    " ALTER ROLE … SET …"
)
_LOCKED = (
    "end the session that holds the lock (see pg_stat_activity), or raise"
    f" lock_timeout {_RAISE.format('lock_timeout')}"
)
_SLOW = (
    "run again; if it is too slow, check the load of the server, or raise"
    f" statement_timeout {_RAISE.format('statement_timeout')}"
)
# Keyed by SQLSTATE, or by its class (the first two characters).
_REMEDIES: Mapping[str, Remedy | str] = {
    "22": DEFECT,
    "23": f"nothing was stored; {DEFECT}",
    "25006": "the server is read-only: use the primary",
    "28": _LOGIN,
    "3D000": _NAME,
    "40": _AGAIN,
    "42501": "grant this user the rights on the database",
    "42P01": _UPGRADE,
    "42703": _UPGRADE,
    "42P07": "use an empty database",
    "53100": "the database's disk is full: free space, then run again",
    "53300": _CONNECTIONS,
    "55P03": _LOCKED,
    "57": _AGAIN,
    "57014": _SLOW,
}
# A failed connection has no SQLSTATE, only libpq's message.
_SIGNS = (
    (re.compile(r"password authentication failed|no password supplied"), _LOGIN),
    (re.compile(r"role \".*\" does not exist"), _LOGIN),
    (
        re.compile(r"no pg_hba\.conf entry"),
        "allow this user in the server's pg_hba.conf",
    ),
    (re.compile(r"database \".*\" does not exist"), _NAME),
    (re.compile(r"too many clients|connection slots are reserved"), _CONNECTIONS),
    (
        re.compile(r"unsupported startup parameter"),
        _STARTUP,
    ),
    (re.compile(r"invalid connection option"), "correct TILEFERRY_DATABASE_URL"),
)


def explain_driver_error(error: BaseException | None, *, is_lost: bool) -> DatabaseError:
    """Return the ``DatabaseError`` for an error of the driver.

    ``is_lost``: the connection was open, and cannot be used any more.
    """
    # The first line has the reason; later lines repeat the query or the address.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    problem = lines[0] if lines else type(error).__name__
    if is_lost:
        return DatabaseError(
            problem=f"the connection was lost: {problem}", remedy=_AGAIN, is_unreachable=True
        )
    code = error.sqlstate if isinstance(error, DriverError) else None
    if code is not None:
        known = _REMEDIES.get(code) or _REMEDIES.get(code[:2])
        return DatabaseError(problem=problem, remedy=known or "see the server's log")
    for sign, remedy in _SIGNS:
        if sign.search(str(error)):
            return DatabaseError(problem=problem, remedy=remedy)
    if isinstance(error, OperationalError | InterfaceError):
        return DatabaseError(
            problem=f"cannot connect: {problem}", remedy=_START, is_unreachable=True
        )
    return DatabaseError(problem=problem, remedy=DEFECT)
