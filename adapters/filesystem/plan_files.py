"""Backfill plans as files."""

from pathlib import Path

from tileferry.adapters.filesystem.files import translated
from tileferry.domain.partitions import PLAN_BYTES_MAX


def read_plan_file(path: Path) -> bytes:
    """Return what is in a file, up to a little more than any plan has."""
    with translated("read", path), path.open("rb") as file:
        return file.read(PLAN_BYTES_MAX + 1)
