"""The guard that keeps domain tests pure does refuse what it says it refuses."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

OUTSIDE: dict[str, Callable[[], object]] = {
    "socket": socket.socket,
    "file write": lambda: Path("written-by-a-domain-test").write_text("x", encoding="utf-8"),
    "process": lambda: subprocess.run([sys.executable, "-V"], check=True),
    "sleep": lambda: time.sleep(0.001),
    "wall clock": time.time,
    "monotonic clock": time.monotonic,
    "datetime clock": lambda: datetime.now(UTC),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_outside_is_out_of_reach(name: str) -> None:
    with pytest.raises(AssertionError, match=r"in a domain test|called from"):
        OUTSIDE[name]()
