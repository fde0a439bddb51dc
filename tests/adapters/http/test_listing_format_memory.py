"""Pages that are made to use memory: what reads them stays small."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from support.hostile_pages import PAGE_BYTES, PAGES
from support.hostile_provider import respond_with, run_raw_server

PEAK_KIB_MAX = 100_000
"""A download promises 150 MB, of which its other parts take 50."""


def test_invariant_30_memory_is_bounded_for_any_page() -> None:
    head = "HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: {}"
    with ExitStack() as servers:
        urls = [
            servers.enter_context(run_raw_server(respond_with(head.format(len(body)), body))).url
            for body, _ in PAGES.values()
        ]
        done = subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-m", "support.page_reader", *urls],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    lines = done.stdout.splitlines()
    for (name, (body, said)), line in zip(PAGES.items(), lines, strict=True):
        peak_kib, outcome = line.split(" ", 1)
        assert len(body) <= PAGE_BYTES, name
        assert outcome.endswith(said), name
        assert int(peak_kib) < PEAK_KIB_MAX, name
