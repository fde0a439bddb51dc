"""Safe access to a SQLite file from an untrusted source.

The file is opened read-only, its schema is not trusted, and SQLite may only run selects with a few
cheap functions. The amount of work, its time and the size of values are limited, from the first
statement on: reading the schema is work too.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from attrs import define, field

from tileferry.domain.errors import ArchiveError, StorageError
from tileferry.domain.tiles import TILE_BYTES_MAX

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_FUNCTIONS = {"typeof", "length", "coalesce", "ifnull", "nullif", "iif", "abs", "min", "max"}
"""Functions allowed in views: their cost and result size are bounded by their arguments."""
_VALUE_BYTES_MAX = TILE_BYTES_MAX + 1024 * 1024
"""Limit for a value: a tile and its facts."""
STEPS_MAX = 1_000_000_000
"""SQLite steps allowed before the first row: enough to sort or index the largest archive."""
STEPS_A_ROW = 1_000
"""Additional steps allowed per row; a join of two tables needs about forty."""
SECONDS_MAX = 300.0
"""A time limit as well, because the number of steps does not bound the duration of a step."""
SECONDS_A_ROW = 0.1
"""Additional time allowed per row, enough for slow disks. Only time in SQLite counts."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _VALUE_BYTES_MAX,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
}
"""Views of views can grow exponentially while SQLite compiles them; their program is limited."""
_PRIMARY_CODE = 0xFF
"""The part of an error code of SQLite that names the kind of error."""
_STEPS_PER_CHECK = 100
"""A signal waits for at most this many steps; comparing large values takes 20 ms per step."""


@define
class UntrustedDatabase:
    """An open file with a work budget, which each fetched row extends."""

    connection: sqlite3.Connection
    check: Callable[[], object]
    """Raises ``KeyboardInterrupt`` to cancel."""
    worked_too_long: bool = field(default=False, init=False)
    _steps_left: int = field(factory=lambda: STEPS_MAX, init=False)
    _seconds_left: float = field(factory=lambda: SECONDS_MAX, init=False)
    _resumed_at_s: float = field(factory=time.monotonic, init=False)

    def fetch_rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        self._resumed_at_s = time.monotonic()
        for row in self.connection.execute(query, values):
            self.check()
            self._steps_left += STEPS_A_ROW
            self._seconds_left += SECONDS_A_ROW - (time.monotonic() - self._resumed_at_s)
            yield row
            self._resumed_at_s = time.monotonic()  # do not count the caller's time

    def guard(self) -> None:
        """Apply all restrictions to the connection."""
        database = self.connection
        database.set_progress_handler(self._check_limits, _STEPS_PER_CHECK)
        for limit, value in _LIMITS.items():
            database.setlimit(limit, value)
        database.text_factory = bytes  # text may be invalid UTF-8
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.execute("PRAGMA query_only = ON")
        database.set_authorizer(_authorize)

    def _check_limits(self) -> int:
        """SQLite progress handler: a result other than 0, or an exception, aborts the query."""
        self.check()
        self._steps_left -= _STEPS_PER_CHECK
        late = time.monotonic() - self._resumed_at_s > self._seconds_left
        self.worked_too_long = self._steps_left < 0 or late
        return int(self.worked_too_long)


@contextmanager
def open_untrusted_database(
    path: Path, label: str, check: Callable[[], object]
) -> Iterator[UntrustedDatabase]:
    """Open a file; raise errors of SQLite as ``ArchiveError``, of the disk as ``StorageError``.

    ``label`` is the name of the format in errors.
    """
    if not path.is_file():
        raise ArchiveError(path=str(path), problem="is not a file", remedy="check the path")
    # Not ``immutable``: SQLite would ignore a write-ahead log next to the file.
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            database = UntrustedDatabase(connection, check)
            database.guard()
            try:
                yield database
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                    raise
                if database.worked_too_long:
                    raise archive_error(path, "reading its tiles takes too much work") from error
                # SQLite drops the exception that a handler raised; only a cancellation raises
                # there.
                raise KeyboardInterrupt from error
    except sqlite3.Error as error:
        if _is_disk_error(error):
            raise StorageError(
                action="read",
                path=str(path),
                problem=str(error),
                remedy="the disk is failing: check it, then re-run",
            ) from error
        raise archive_error(path, f"cannot be read as {label}: {error}") from error
    except UnicodeDecodeError as error:  # by the module, for a message with a damaged name
        raise archive_error(path, f"cannot be read as {label}: a name is not UTF-8") from error


def _is_disk_error(error: sqlite3.Error) -> bool:
    """Return whether the disk failed; a short read is an incomplete file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)  # errors of the module have none
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return False
    return bool(code & _PRIMARY_CODE == sqlite3.SQLITE_IOERR)


def archive_error(path: Path, problem: str) -> ArchiveError:
    return ArchiveError(
        path=str(path),
        problem=problem,
        remedy="get the archive again; tiles imported so far are kept",
    )


def _authorize(action: int, _table: str | None, name: str | None, *_details: object) -> int:
    if action in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and name in _FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
