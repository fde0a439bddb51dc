"""How much space the files of a cache take."""

import os
from collections.abc import Mapping
from pathlib import Path


def measure_segments(root: Path) -> int:
    """Return the size of the segments of the cache in ``root``; 0 if there is none."""
    return _measure(root / ".c6" / "segments")


def measure_outboxes(root: Path) -> Mapping[str, int]:
    """Return the size of the audit events that wait, by the folder of their sink."""
    outboxes = root / ".c11" / "audit-outbox"
    try:
        names = os.listdir(outboxes)  # noqa: PTH208  # only the names
    except OSError:
        return {}
    return {name: _measure(outboxes / name) for name in sorted(names)}


def _measure(folder: Path) -> int:
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    size += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:  # removed in the meantime
                    continue
    except OSError:
        return 0
    return size
