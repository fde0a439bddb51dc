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

import tileferry.adapters.postgres.work_schema  # noqa: F401  # adds its tables to the metadata
from tileferry import migrations
from tileferry.adapters.postgres import Database, downgrade, get_schema_status, upgrade
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
def empty_database(empty_database_url: str) -> Iterator[Database]:
    database = Database.from_url(empty_database_url)
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


def _read_contents(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    with database.read_connection() as connection:
        return {
            table: sorted(
                (dict(row) for row in connection.execute(text(f"TABLE {table}")).mappings()),
                key=repr,
            )
            for table in _list_tables(connection)
        }


def _list_tables(connection: Connection) -> list[str]:
    return [name for name in inspect(connection).get_table_names() if name != "alembic_version"]


def _select_shared_columns(
    rows: list[dict[str, Any]], like: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The columns of ``rows`` that ``like`` has too."""
    return [
        {key: row[key] for key in row if key in other}
        for row, other in zip(rows, like, strict=True)
    ]


def _read_columns(connection: Connection) -> dict[str, tuple[object, ...]]:
    query = text(
        """
        SELECT table_name || '.' || column_name, data_type, is_nullable, column_default,
               collation_name, character_maximum_length, numeric_precision, datetime_precision,
               is_identity, is_generated
        FROM information_schema.columns WHERE table_schema = 'public'
        """
    )
    return {row[0]: tuple(row[1:]) for row in connection.execute(query)}


def _read_catalog(database: Database) -> dict[str, object]:
    """All that the server knows of the schema, in its own words."""
    routines = text(
        """
        SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        UNION SELECT oid::regprocedure::text, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
        """
    )
    with database.read_connection() as connection:
        return {**_read_table_catalog(connection), **_read_pairs(connection, routines)}


def _read_pairs(connection: Connection, query: TextClause) -> dict[str, object]:
    return {row[0]: row[1] for row in connection.execute(query)}


def _read_table_catalog(connection: Connection) -> dict[str, object]:
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
        **_read_columns(connection),
        **_read_pairs(connection, constraints),
        **_read_pairs(connection, indexes),
        **_read_pairs(connection, others),
    }
    return {name: found[name] for name in found if "alembic_version" not in name}


def test_revisions_form_one_linear_sequence() -> None:
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


def test_spec1_ac8_0002_adds_upload_attempts_and_can_be_downgraded(
    empty_database: Database,
) -> None:
    upgrade(empty_database, "0001")
    _put_rows(empty_database)
    before = _read_catalog(empty_database)
    rows = _read_contents(empty_database)["tiles"]
    assert len(rows) == 5
    upgrade(empty_database, "0002")
    after = _read_catalog(empty_database)
    added = {name: after[name] for name in after.keys() - before.keys()}
    # Of the column there is nothing but its being NOT NULL, which newer servers list by itself.
    assert added.pop("tiles.tiles_upload_attempts_not_null", "NOT NULL upload_attempts") == (
        "NOT NULL upload_attempts"
    )
    assert added == {
        "tiles.upload_attempts": ("integer", "NO", "0", None, None, 32, None, "NO", "NEVER")
    }
    assert {name: after[name] for name in before} == before
    assert _read_contents(empty_database)["tiles"] == [
        {**row, "upload_attempts": 0} for row in rows
    ]
    _execute(empty_database, "UPDATE tiles SET upload_attempts = x")
    downgrade(empty_database, "0001")
    assert _read_catalog(empty_database) == before
    assert _read_contents(empty_database)["tiles"] == rows
    assert get_schema_status(empty_database).found == "0001"


def test_each_migration_can_be_reverted_and_reapplied_without_data_loss(
    empty_database: Database,
) -> None:
    for earlier, revision in zip(EARLIER, REVISIONS, strict=False):
        before, data = _read_catalog(empty_database), _read_contents(empty_database)
        assert upgrade(empty_database, revision).found == revision
        after, upgraded = _read_catalog(empty_database), _read_contents(empty_database)
        assert after != before
        assert {
            name: _select_shared_columns(upgraded[name], rows) for name, rows in data.items()
        } == data
        downgrade(empty_database, earlier)
        assert (_read_catalog(empty_database), _read_contents(empty_database)) == (before, data)
        upgrade(empty_database, revision)
        assert (_read_catalog(empty_database), _read_contents(empty_database)) == (after, upgraded)
        if revision in PUT:
            PUT[revision](empty_database)
    assert [len(_read_contents(empty_database)[name]) for name in ("tiles", "audit_log")] == [5, 1]
    downgrade(empty_database, "base")
    assert _read_catalog(empty_database) == {}


def test_upgrade_from_empty_reaches_head_and_is_idempotent(
    empty_database: Database,
) -> None:
    assert get_schema_status(empty_database).found is None
    assert upgrade(empty_database).is_current
    once = _read_catalog(empty_database)
    status = upgrade(empty_database)
    assert (status.found, status.needed, status.known) == (HEAD, HEAD, tuple(REVISIONS))
    assert _read_catalog(empty_database) == once


def test_model_matches_the_migrated_schema(empty_database: Database) -> None:
    with empty_database.transaction() as connection:
        metadata.create_all(connection)
        model = _read_table_catalog(connection)
        metadata.drop_all(connection)
    upgrade(empty_database)
    with empty_database.read_connection() as connection:
        assert _read_table_catalog(connection) == model
    options = {"compare_type": True, "compare_server_default": True}
    with empty_database.read_connection() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_id_columns_use_the_c_collation(database: Database) -> None:
    with database.read_connection() as connection:
        names = {
            name: row[3]
            for name, row in _read_columns(connection).items()
            if name.endswith("_id") and row[0] == "text"
        }
        assert names.keys() >= {"tiles.flight_id", "flight_pins.flight_id"}
        assert {**names, "source": _read_columns(connection)["tiles.source"][3]} == dict.fromkeys(
            [*names, "source"], "C"
        )


def test_concurrent_upgrades_in_threads_are_serialized(empty_database: Database) -> None:
    with ThreadPoolExecutor(4) as threads:
        results = [threads.submit(upgrade, empty_database) for _ in range(4)]
        assert all(result.result().is_current for result in results)
    _put_rows(empty_database)


UPGRADE = """
import sys
from tileferry.adapters.postgres import Database, upgrade
database = Database.from_url(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(upgrade(database).found)
"""


def test_concurrent_upgrades_in_processes_are_serialized(
    empty_database: Database, empty_database_url: str
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
    assert get_schema_status(empty_database).is_current


def test_failed_upgrade_leaves_the_schema_unchanged(empty_database: Database) -> None:
    _execute(empty_database, "CREATE TABLE flight_pins (something integer)")
    before = _read_catalog(empty_database)
    with pytest.raises(DatabaseError, match="use an empty database"):
        upgrade(empty_database)
    assert _read_catalog(empty_database) == before
    assert get_schema_status(empty_database).found is None


def test_unknown_revision_is_rejected(database: Database) -> None:
    for change in (upgrade, downgrade):
        with pytest.raises(InvalidValueError, match="use one of 0001, 0002"):
            change(database, "0815")
    assert get_schema_status(database).is_current
