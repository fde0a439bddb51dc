"""Files that are written whole or not at all, and for their owner alone."""

from pathlib import Path

from tileferry.adapters.filesystem.files import Directory, FileCalls, translated
from tileferry.adapters.filesystem.replace import replace_file
from tileferry.domain.errors import StorageError


def write_whole_file(path: Path, content: bytes) -> None:
    """Write a file in a folder that is there; an older file of its name goes at once."""
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
