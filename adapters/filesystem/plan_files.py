"""Backfill plans as files: written whole or not at all, and for their owner alone."""

from pathlib import Path

from tileferry.adapters.filesystem.files import Directory, FileCalls, translated
from tileferry.adapters.filesystem.replace import replace_file
from tileferry.domain.errors import StorageError
from tileferry.domain.partitions import PLAN_BYTES_MAX


def write_plan_file(path: Path, content: bytes) -> None:
    """Write a plan to a file in a folder that is there; an older file of its name goes at once."""
    with translated("write", path):
        is_there = path.parent.is_dir()
    if not is_there:
        raise StorageError(
            action="write",
            path=str(path),
            problem="there is no such folder",
            remedy="make it, or name another file",
        )
    with Directory.open_root(path.parent, FileCalls()) as directory:
        replace_file(directory, path.name, content)


def read_plan_file(path: Path) -> bytes:
    """Return what is in a file, up to a little more than any plan has."""
    with translated("read", path), path.open("rb") as file:
        return file.read(PLAN_BYTES_MAX + 1)
