"""Somebody's SQLite file, opened so that whatever it says does no harm.

It is opened to read only, its schema is not trusted, and SQLite may select and nothing else, with
a few functions that make no work. How much work and how large a value it may take is bounded.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from attrs import define, field

from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TILE_BYTES_MAX

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_FUNCTIONS = {"typeof", "length", "coalesce", "ifnull", "nullif", "iif", "abs", "min", "max"}
"""What views of tiles may use: none takes longer, or makes more, than what it is given."""
_VALUE_BYTES_MAX = TILE_BYTES_MAX + 1024 * 1024
"""Of a row: a tile, and what is said of it."""
STEPS_MAX = 1_000_000_000
"""Of SQLite's own steps, before any row: enough to sort or index the largest archive."""
STEPS_A_ROW = 1_000
"""So many more for each row; a join of two tables takes some forty."""
SECONDS_A_ROW = 300.0
"""What a single step takes is not bounded by their number."""
_STEPS_PER_CHECK = 100
"""So many a signal may wait. Most take no time, but comparing large values takes 20 ms."""


@define
class UntrustedDatabase:
    """An open file. A row is to be counted, so that it may go on."""

    connection: sqlite3.Connection
    check: Callable[[], object]
    """Raises ``KeyboardInterrupt`` for who wants it to end."""
    worked_too_long: bool = field(default=False, init=False)
    _steps_left: int = field(factory=lambda: STEPS_MAX, init=False)
    _row_at_s: float = field(factory=time.monotonic, init=False)

    def fetch_rows(self, query: str) -> Iterator[tuple[object, ...]]:
        """Yield what a query finds."""
        for row in self.connection.execute(query):
            self.check()
            self._steps_left += STEPS_A_ROW
            yield row
            self._row_at_s = time.monotonic()  # what was done with the row is not its time

    def guard(self) -> None:
        """Bound what is done from now on."""
        database = self.connection
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.execute("PRAGMA query_only = ON")
        database.text_factory = bytes  # text need not be UTF-8 there
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
        database.set_authorizer(_authorize)
        database.set_progress_handler(self._check_limits, _STEPS_PER_CHECK)

    def _check_limits(self) -> int:
        """End a query with any other answer than 0, and with whatever is raised."""
        self.check()
        self._steps_left -= _STEPS_PER_CHECK
        late = time.monotonic() - self._row_at_s > SECONDS_A_ROW
        self.worked_too_long = self._steps_left < 0 or late
        return int(self.worked_too_long)


@contextmanager
def open_untrusted_database(path: Path, check: Callable[[], object]) -> Iterator[UntrustedDatabase]:
    """Open a file; what SQLite says of it becomes an ``ArchiveError``."""
    if not path.is_file():
        raise ArchiveError(path=str(path), problem="is no file", remedy="check the path")
    # Not immutable: a file with a write-ahead log beside it would be read without that.
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
                    raise archive_error(path, "its tiles take too much work to find") from error
                # SQLite forgets what was raised while it worked; only a signal raises there.
                raise KeyboardInterrupt from error
    except sqlite3.Error as error:
        raise archive_error(path, f"cannot be read as MBTiles: {error}") from error


def archive_error(path: Path, problem: str) -> ArchiveError:
    """Say what is wrong with an archive."""
    return ArchiveError(
        path=str(path),
        problem=problem,
        remedy="get the archive again; what was imported of it is kept",
    )


def _authorize(action: int, _table: str | None, name: str | None, *_details: object) -> int:
    if action in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and name in _FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
