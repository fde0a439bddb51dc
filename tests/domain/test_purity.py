"""The guard that keeps domain tests pure does refuse what it says it refuses."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

OUTSIDE: dict[str, Callable[[], object]] = {
    "socket": socket.socket,
    "file write": lambda: Path("written-by-a-domain-test").write_text("x", encoding="utf-8"),
    "process": lambda: subprocess.run([sys.executable, "-V"], check=True),
    "sleep": lambda: time.sleep(0.001),
    "wall clock": lambda: time.time(),  # noqa: PLW0108  # patched after import
    "monotonic clock": lambda: time.monotonic(),  # noqa: PLW0108  # patched after import
    "datetime clock": lambda: datetime.now(UTC),
    "calendar": lambda: date.today(),  # noqa: DTZ011, PLW0108  # the point; patched after import
    "this instant": lambda: datetime.today(),  # noqa: DTZ002, PLW0108  # as above
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_io_and_clocks_are_blocked_in_domain_tests(name: str) -> None:
    with pytest.raises(AssertionError, match=r"in a domain test|called from"):
        OUTSIDE[name]()
