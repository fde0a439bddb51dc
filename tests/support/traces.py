"""All that commands leave behind, to be searched for what must not be there."""

from contextlib import closing

from sqlalchemy import text

from support.area_operator import AreaOperator
from support.operator import Ran
from tileferry.adapters.postgres import Database


def audit_rows(database_url: str) -> str:
    with closing(Database.at(database_url)) as database, database.reading() as connection:
        rows = connection.execute(text("SELECT * FROM audit_log")).all()
        others = connection.execute(text("SELECT * FROM tiles")).all()
    return repr([*map(tuple, rows), *map(tuple, others)])


def everything(operator: AreaOperator, *runs: Ran) -> str:
    """Return all that commands left: on their outputs, in every file, in the database."""
    printed = "".join(ran.out + ran.err for ran in runs)
    return (
        printed + operator.written().decode("utf-8", "replace") + audit_rows(operator.database_url)
    )
