"""Translation of SQLAlchemy and driver errors into ``DatabaseError`` with a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Error as DriverError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tileferry.adapters.postgres.driver_errors import DEFECT, explain_driver_error
from tileferry.domain.errors import DatabaseError


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Raise SQLAlchemy errors from the block as ``DatabaseError``, with the cause and a remedy."""
    try:
        yield
    except DBAPIError as error:
        raise database_error(error) from error
    except DriverError as error:  # of a statement that was given to the driver itself
        raise explain_driver_error(error, is_lost=False) from error
    except PoolTimeoutError as error:
        raise DatabaseError(
            problem="timed out waiting for a free connection",
            remedy="lower the concurrency, or raise the size of the pool",
        ) from error
    except SQLAlchemyError as error:
        raise DatabaseError(problem=str(error), remedy=DEFECT) from error


def get_sqlstate(error: DBAPIError) -> str | None:
    """Return the error's SQLSTATE; ``None`` if the error did not come from the server."""
    return error.orig.sqlstate if isinstance(error.orig, DriverError) else None


def database_error(error: DBAPIError) -> DatabaseError:
    """Return the ``DatabaseError`` for a driver error."""
    return explain_driver_error(error.orig, is_lost=error.connection_invalidated)
