"""The schema, step by step: up, down and up again on data, and the same as the model in the end."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, TextClause, inspect, text

from tileferry import migrations
from tileferry.adapters.postgres import Database, downgrade, schema_status, upgrade
from tileferry.adapters.postgres.schema import metadata
from tileferry.domain.errors import DatabaseError, InvalidValueError
from tileferry.migrations import LOCATION

_config = Config()
_config.set_main_option("script_location", str(LOCATION))
REVISIONS = [script.revision for script in ScriptDirectory.from_config(_config).walk_revisions()][
    ::-1
]
EARLIER = ["base", *REVISIONS]
HEAD = REVISIONS[-1]


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Database]:
    database = Database.at(empty_database_url)
    yield database
    database.close()


def _execute(database: Database, statement: str) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement))


def _put_rows(database: Database) -> None:
    """Rows that the first schema can hold, one of each status."""
    _execute(
        database,
        """
        INSERT INTO tiles (
            source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class,
            freshness, voting_status, segment, byte_offset, byte_length, sha256, stored_at,
            last_used_at, uploaded_at
        )
        SELECT 'cam', 15, n, 7, 'F1', now(), 0.6, 'stable_rear', 'fresh', status, 1, n, 20000,
               decode(repeat('ab', 32), 'hex'), now(), now(),
               CASE WHEN status IN ('uploaded', 'rejected') THEN now() END
        FROM unnest(ARRAY['pending', 'uploaded', 'trusted', 'rejected', 'upload_giveup'])
             WITH ORDINALITY AS made(status, n)
        """,
    )


def _put_audit(database: Database) -> None:
    """An entry of the log, chained by the database."""
    _execute(
        database,
        "SELECT audit_append(NULL, ARRAY['{}'::bytea], ARRAY['idempotency'], ARRAY[now()],"
        " ARRAY['corr'], ARRAY['key'])",
    )


PUT = {"0001": _put_rows, "0004": _put_audit}
"""What each revision is given to hold, so that all later ones are tried on data."""


def _contents(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    with database.reading() as connection:
        return {
            table: sorted(
                (dict(row) for row in connection.execute(text(f"TABLE {table}")).mappings()),
                key=repr,
            )
            for table in _tables(connection)
        }


def _tables(connection: Connection) -> list[str]:
    return [name for name in inspect(connection).get_table_names() if name != "alembic_version"]


def _shared(rows: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The columns of ``rows`` that ``like`` has too."""
    return [
        {key: row[key] for key in row if key in other}
        for row, other in zip(rows, like, strict=True)
    ]


def _columns(connection: Connection) -> dict[str, tuple[object, ...]]:
    query = text(
        """
        SELECT table_name || '.' || column_name, data_type, is_nullable, column_default,
               collation_name, character_maximum_length, numeric_precision, datetime_precision,
               is_identity, is_generated
        FROM information_schema.columns WHERE table_schema = 'public'
        """
    )
    return {row[0]: tuple(row[1:]) for row in connection.execute(query)}


def _catalog(database: Database) -> dict[str, object]:
    """All that the server knows of the schema, in its own words."""
    routines = text(
        """
        SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        UNION SELECT oid::regprocedure::text, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
        """
    )
    with database.reading() as connection:
        return {**_table_catalog(connection), **_pairs(connection, routines)}


def _pairs(connection: Connection, query: TextClause) -> dict[str, object]:
    return {row[0]: row[1] for row in connection.execute(query)}


def _table_catalog(connection: Connection) -> dict[str, object]:
    """What there is of the schema but triggers and functions, which migrations alone make."""
    constraints = text(
        """
        SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        """
    )
    indexes = text(
        """
        SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
        JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = 'public'::regnamespace
        """
    )
    others = text(
        """
        SELECT relname, relkind::text FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind NOT IN ('r', 'i')
        """
    )
    found = {
        **_columns(connection),
        **_pairs(connection, constraints),
        **_pairs(connection, indexes),
        **_pairs(connection, others),
    }
    return {name: found[name] for name in found if "alembic_version" not in name}


def test_the_revisions_are_one_line_of_numbers() -> None:
    assert [f"{number:04}" for number in range(1, len(REVISIONS) + 1)] == REVISIONS
    scripts = ScriptDirectory.from_config(_config)
    assert scripts.get_bases() == [REVISIONS[0]]
    assert scripts.get_heads() == [REVISIONS[-1]]
    assert list(migrations.REVISIONS) == REVISIONS, "told by the names of the files"


def test_migrations_import_nothing_of_the_product() -> None:
    for path in [LOCATION / "env.py", *(LOCATION / "versions").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                assert (node.module or "").split(".")[0] in {"alembic", "sqlalchemy"}, path
            assert not isinstance(node, ast.Import), path


def test_spec1_ac8_0002_adds_the_count_and_can_be_taken_back(empty: Database) -> None:
    upgrade(empty, "0001")
    _put_rows(empty)
    before = _catalog(empty)
    rows = _contents(empty)["tiles"]
    assert len(rows) == 5
    upgrade(empty, "0002")
    after = _catalog(empty)
    added = {name: after[name] for name in after.keys() - before.keys()}
    # Of the column there is nothing but its being NOT NULL, which newer servers list by itself.
    assert added.pop("tiles.tiles_upload_attempts_not_null", "NOT NULL upload_attempts") == (
        "NOT NULL upload_attempts"
    )
    assert added == {
        "tiles.upload_attempts": ("integer", "NO", "0", None, None, 32, None, "NO", "NEVER")
    }
    assert {name: after[name] for name in before} == before
    assert _contents(empty)["tiles"] == [{**row, "upload_attempts": 0} for row in rows]
    _execute(empty, "UPDATE tiles SET upload_attempts = x")
    downgrade(empty, "0001")
    assert _catalog(empty) == before
    assert _contents(empty)["tiles"] == rows
    assert schema_status(empty).found == "0001"


def test_each_step_can_be_taken_back_and_again_and_data_stays(empty: Database) -> None:
    for earlier, revision in zip(EARLIER, REVISIONS, strict=False):
        before, data = _catalog(empty), _contents(empty)
        assert upgrade(empty, revision).found == revision
        after, upgraded = _catalog(empty), _contents(empty)
        assert after != before
        assert {name: _shared(upgraded[name], rows) for name, rows in data.items()} == data
        downgrade(empty, earlier)
        assert (_catalog(empty), _contents(empty)) == (before, data)
        upgrade(empty, revision)
        assert (_catalog(empty), _contents(empty)) == (after, upgraded)
        if revision in PUT:
            PUT[revision](empty)
    assert [len(_contents(empty)[name]) for name in ("tiles", "audit_log")] == [5, 1]
    downgrade(empty, "base")
    assert _catalog(empty) == {}


def test_the_newest_is_reached_from_nothing_and_upgrading_again_changes_nothing(
    empty: Database,
) -> None:
    assert schema_status(empty).found is None
    assert upgrade(empty).is_current
    once = _catalog(empty)
    status = upgrade(empty)
    assert (status.found, status.needed, status.known) == (HEAD, HEAD, tuple(REVISIONS))
    assert _catalog(empty) == once


def test_the_model_and_the_migrated_schema_are_the_same(empty: Database) -> None:
    with empty.transaction() as connection:
        metadata.create_all(connection)
        model = _table_catalog(connection)
        metadata.drop_all(connection)
    upgrade(empty)
    with empty.reading() as connection:
        assert _table_catalog(connection) == model
    options = {"compare_type": True, "compare_server_default": True}
    with empty.reading() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_names_are_ordered_by_their_bytes_on_every_server(database: Database) -> None:
    with database.reading() as connection:
        names = {
            name: row[3]
            for name, row in _columns(connection).items()
            if name.endswith("_id") and row[0] == "text"
        }
        assert names.keys() >= {"tiles.flight_id", "flight_pins.flight_id"}
        assert {**names, "source": _columns(connection)["tiles.source"][3]} == dict.fromkeys(
            [*names, "source"], "C"
        )


def test_threads_that_upgrade_at_once_take_turns(empty: Database) -> None:
    with ThreadPoolExecutor(4) as threads:
        results = [threads.submit(upgrade, empty) for _ in range(4)]
        assert all(result.result().is_current for result in results)
    _put_rows(empty)


UPGRADE = """
import sys
from tileferry.adapters.postgres import Database, upgrade
database = Database.at(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(upgrade(database).found)
"""


def test_processes_that_upgrade_at_once_take_turns(
    empty: Database, empty_database_url: str
) -> None:
    command = [sys.executable, "-c", UPGRADE, empty_database_url]
    pipe = subprocess.PIPE
    racers = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)  # noqa: S603  # as written here
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        assert (*racer.communicate(timeout=30), racer.returncode) == (f"{HEAD}\n", "", 0)
    assert schema_status(empty).is_current


def test_an_upgrade_that_fails_leaves_the_schema_as_it_was(empty: Database) -> None:
    _execute(empty, "CREATE TABLE flight_pins (something integer)")
    before = _catalog(empty)
    with pytest.raises(DatabaseError, match="use a database that holds nothing else"):
        upgrade(empty)
    assert _catalog(empty) == before
    assert schema_status(empty).found is None


def test_a_step_that_does_not_exist_is_refused(database: Database) -> None:
    for change in (upgrade, downgrade):
        with pytest.raises(InvalidValueError, match="this version knows 0001, 0002"):
            change(database, "0815")
    assert schema_status(database).is_current
