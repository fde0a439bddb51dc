"""What can be wrong with a database: each time a clear message, and never the password in it."""

import socket
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from sqlalchemy import event, text
from sqlalchemy.engine import make_url
from support.tile_rows import TILE, create_metadata_store

from tileferry.adapters.postgres import Database, get_schema_status, server_process, upgrade
from tileferry.domain.errors import DatabaseError, InvalidValueError, TileManagerError

CANARY = "c4n4ry"


def _get_error(use: Callable[[], object]) -> str:
    """What an attempt is refused with; nothing that can be shown of it has the password."""
    with pytest.raises((DatabaseError, InvalidValueError)) as caught:
        use()
    error = caught.value
    chain: BaseException | None = error
    while chain is not None:
        shown = [str(chain), repr(chain), str(chain.args), *traceback.format_exception(chain)]
        assert not [line for line in shown if CANARY in line]
        chain = chain.__cause__ or chain.__context__
    assert isinstance(error, TileManagerError)
    return str(error)


def _connect(url: str) -> Callable[[], object]:
    def connect() -> None:
        database = Database.from_url(url)
        assert CANARY not in repr(database)
        try:
            database.check_server()
        finally:
            database.close()

    return connect


def _change_url(url: str, **changes: str) -> str:
    changed = make_url(url).set(password=CANARY).set(**changes)  # type: ignore[arg-type]  # names of parts
    return changed.render_as_string(hide_password=False)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:  # it is bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@pytest.fixture
def guarded_url(database: Database, database_url: str) -> Iterator[str]:
    """The address of a user whom the server asks for a password, which is the canary."""
    user = f"guarded_{make_url(database_url).database}"
    rule = f"local all {user} scram-sha-256\n"
    with database.read_connection() as connection:
        connection.execute(text(f"CREATE ROLE {user} LOGIN PASSWORD '{CANARY}'"))
        folder = make_url(database_url).query["host"]  # the server may name it in its own terms
        rules = Path(str(folder)) / "pg_hba.conf"
        with FileLock(rules.parent.parent / "rules.lock"):  # the server is everybody's
            rules.write_text(rule + rules.read_text())
        connection.execute(text("SELECT pg_reload_conf()"))
    _wait_until_refused(_change_url(database_url, username=user).replace(CANARY, "wrong"))
    yield _change_url(database_url, username=user)
    with database.read_connection() as connection:
        connection.execute(text(f"DROP OWNED BY {user}; DROP ROLE {user}"))


def _wait_until_refused(url: str) -> None:
    """Wait until the server has read its rules again."""
    for _ in range(100):
        try:
            _connect(url)()
        except DatabaseError:
            return
        time.sleep(0.05)
    pytest.fail("the server asks for no password")


def test_unreachable_server_is_reported(closed_port: int, tmp_path: Path) -> None:
    refusal = _get_error(_connect(f"postgresql://u:{CANARY}@127.0.0.1:{closed_port}/db"))
    assert "cannot connect" in refusal
    assert f"port {closed_port} failed: Connection refused" in refusal
    assert "start the server, or correct TILEFERRY_DATABASE_URL" in refusal
    refusal = _get_error(_connect(f"postgresql://u:{CANARY}@/db?host={tmp_path}"))
    assert "cannot connect" in refusal
    refusal = _get_error(_connect(f"postgresql://u:{CANARY}@no.such.host.invalid/db"))
    assert "failed to resolve host 'no.such.host.invalid'" in refusal


def test_wrong_password_is_reported(guarded_url: str) -> None:
    _connect(guarded_url)()
    for wrong in (f"wrong-{CANARY}", ""):
        url = make_url(guarded_url).set(password=wrong)
        refusal = _get_error(_connect(url.render_as_string(hide_password=False)))
        assert "password" in refusal
        assert refusal.endswith("check the user and password in TILEFERRY_DATABASE_URL")


def test_password_in_url_options_is_redacted(guarded_url: str) -> None:
    url = make_url(guarded_url).set(password=None).update_query_dict({"password": CANARY})
    _connect(url.render_as_string())()
    assert CANARY not in repr(Database.from_url(url.render_as_string()).engine)
    wrong = url.update_query_dict({"password": f"wrong-{CANARY}"}).render_as_string()
    assert "check the user and password" in _get_error(_connect(wrong))


def test_unknown_user_or_database_is_reported(database_url: str) -> None:
    refusal = _get_error(_connect(_change_url(database_url, username="nobody")))
    assert 'role "nobody" does not exist; check the user and password' in refusal
    refusal = _get_error(_connect(_change_url(database_url, database="nowhere")))
    assert 'database "nowhere" does not exist; create the database, or correct' in refusal


@pytest.mark.parametrize(
    "url",
    [
        "",
        CANARY,
        f"//u:{CANARY}@host/db",
        f"postgresql://u:{CANARY}",
        f"postgresql://u:{CANARY}/db",
        f"postgresql://u:p@{CANARY}@host/db",
        f"postgresql://u:p@{CANARY}:1@host/db",
        f"postgresql://u:p@host:{CANARY}/db",
        f"postgresql://u:{CANARY}@host:54x2/db",
        f"postgresql://u:{CANARY}@host:-/db",
        f"post gresql://u:{CANARY}@host/db",
    ],
)
def test_invalid_database_url_is_rejected(url: str) -> None:
    refusal = _get_error(_connect(url))
    assert refusal.startswith("TILEFERRY_DATABASE_URL: is not a database URL")
    assert "use postgresql://user:password@host:port/database" in refusal


@pytest.mark.parametrize("scheme", ["mysql", "sqlite", "postgresql9", "https"])
def test_url_of_another_database_type_is_rejected(scheme: str) -> None:
    refusal = _get_error(_connect(f"{scheme}://u:{CANARY}@host/db"))
    assert f"is not a Postgres URL (got '{scheme}'); use postgresql://" in refusal


def test_postgres_scheme_and_other_drivers_are_accepted(database_url: str) -> None:
    for scheme in ("postgres", "postgresql+asyncpg"):
        _connect(database_url.replace("postgresql", scheme, 1))()


def test_unknown_or_invalid_url_option_is_reported(database_url: str) -> None:
    refusal = _get_error(_connect(f"{_change_url(database_url)}&sslmod={CANARY}"))
    assert 'invalid connection option "sslmod"; correct TILEFERRY_DATABASE_URL' in refusal
    refusal = _get_error(_connect(f"{_change_url(database_url)}&target_session_attrs=nonsense"))
    assert "nonsense" in refusal


def test_empty_outdated_or_newer_schema_is_rejected(empty_database_url: str) -> None:
    database = Database.from_url(empty_database_url)
    check: Callable[[], object] = lambda: get_schema_status(database).check()  # noqa: E731
    needed = get_schema_status(database).needed
    assert _get_error(check) == (
        f"database: the schema is empty; this version needs {needed}; upgrade the database schema"
    )
    refusal = _get_error(lambda: create_metadata_store(database).get_metadata(TILE))
    assert 'relation "tiles" does not exist; upgrade the database schema' in refusal
    upgrade(database, "0001")
    assert _get_error(check) == (
        f"database: the schema is at 0001; this version needs {needed}; upgrade the database schema"
    )
    store = create_metadata_store(database)
    refusal = _get_error(lambda: store.increment_upload_attempts(TILE))
    assert 'column "upload_attempts" does not exist; upgrade the database schema' in refusal
    upgrade(database)
    check()
    with database.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (check, lambda: upgrade(database)):
        assert _get_error(use) == (
            f"database: the schema is at 9999; this version supports up to {needed}; "
            "use the newer version that upgraded it"
        )
    database.close()


def test_outdated_server_is_rejected(database: Database) -> None:
    def answer(
        _connection: object, _cursor: object, statement: str, parameters: object, *_: object
    ) -> tuple[str, object]:
        is_version = "server_version_num" in statement
        return "SELECT 140012, '14.12'" if is_version else statement, parameters

    assert database.check_server().startswith(str(server_process.MAJOR_VERSION))
    event.listen(database.engine, "before_cursor_execute", answer, retval=True)
    expected = "database: the server is PostgreSQL 14.12; use version 15 or later"
    assert _get_error(database.check_server) == expected
    assert _get_error(lambda: upgrade(database)) == expected


def test_missing_permissions_are_reported(guarded_url: str, database: Database) -> None:
    guarded = Database.from_url(guarded_url)
    refusal = _get_error(lambda: create_metadata_store(guarded).get_metadata(TILE))
    assert "permission denied for table tiles; grant this user the rights" in refusal
    with database.read_connection() as connection:
        connection.execute(text(f"GRANT SELECT ON tiles TO {make_url(guarded_url).username}"))
    assert create_metadata_store(guarded).get_metadata(TILE) is None
    guarded.close()


def test_unstorable_value_is_reported_as_a_defect(
    database: Database,
) -> None:
    def ask() -> None:
        with database.read_connection() as connection:
            connection.execute(text("SELECT :value"), {"value": "a\x00b"})

    assert "this is a defect" in _get_error(ask)


def test_exhausted_connection_pool_is_reported(database: Database) -> None:
    pool = database.engine.pool
    pool._timeout = 0.1  # type: ignore[attr-defined]  # of a QueuePool
    held = [database.engine.connect() for _ in range(18)]
    refusal = _get_error(lambda: create_metadata_store(database).get_metadata(TILE))
    assert refusal == (
        "database: timed out waiting for a free connection; "
        "lower the concurrency, or raise the size of the pool"
    )
    for connection in held:
        connection.close()


def test_synchronous_commit_is_enforced(database: Database, database_url: str) -> None:
    name = make_url(database_url).database
    for configured, expected in (
        ("off", "on"),
        ("local", "local"),
        ("remote_apply", "remote_apply"),
    ):
        with database.read_connection() as connection:
            connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = {configured}"))
        other = Database.from_url(database_url)
        with other.transaction() as connection:
            found = connection.execute(text("SHOW synchronous_commit")).scalar_one()
        assert found == expected
        other.close()


def test_closed_database_raises(database_url: str) -> None:
    database = Database.from_url(database_url)
    assert database.check_server()
    database.close()
    assert "this connection was closed" in _get_error(database.check_server)
