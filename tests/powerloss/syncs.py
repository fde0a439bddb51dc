"""The calls that make something durable, in this process: skipped on purpose, or the last one.

A skipped call is a planted bug, which the checks must notice. A kill ends the process right before
such a call, as SIGKILL does.
"""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, frozen

from tileferry.adapters.filesystem.archives import tree
from tileferry.adapters.filesystem.files import FileCalls


@frozen
class PlantedBug:
    """Syncs that are skipped: of files or of folders, by a part of their path."""

    of_folders: bool
    parts: tuple[str, ...]
    ends: bool = False
    """Whether the path must end with a part."""

    def skips(self, path: str, *, is_folder: bool) -> bool:
        found = path.endswith if self.ends else path.__contains__
        return is_folder is self.of_folders and any(found(part) for part in self.parts)


BUGS = {
    "segments": PlantedBug(of_folders=False, parts=("/.c6/segments/",)),
    "journal": PlantedBug(of_folders=False, parts=("/.c11/journal/",)),
    "recorder": PlantedBug(of_folders=False, parts=("/.c11/fdr/",)),
    "outbox": PlantedBug(of_folders=False, parts=("/audit-outbox/",)),
    "raw": PlantedBug(of_folders=False, parts=("/raw/",)),
    "export": PlantedBug(of_folders=False, parts=(".tileferry-draft",)),
    "folders": PlantedBug(of_folders=True, parts=("/",)),
    "journal-names": PlantedBug(of_folders=True, parts=("/cache/.c11/journal",), ends=True),
    "raw-names": PlantedBug(of_folders=True, parts=("/raw/",)),
    "export-names": PlantedBug(of_folders=True, parts=("/exports",), ends=True),
}
"""What is not made durable, by name. ``names`` are the entries of a folder."""
HIDDEN_BUGS = {
    "segment-names": PlantedBug(of_folders=True, parts=("/cache/.c6/segments",), ends=True),
    "recorder-names": PlantedBug(of_folders=True, parts=("/.c11/fdr",), ends=True),
    "parents": PlantedBug(
        of_folders=True, parts=("/mnt", "/cache", "/.c6", "/.c11", "/recorder"), ends=True
    ),
}
"""Linux makes these durable with the first fsync of a new file: no cut can show the bug."""


@define
class SyncWatch:
    """Decides about each sync of this process."""

    bug: PlantedBug | None
    kill_at: int | None
    """The process is killed right before this sync, counted from 1."""
    _count: int = 0

    def install(self) -> None:
        """Replace the calls, from now on."""
        init, fsync, syncfs = FileCalls.__init__, os.fsync, tree._sync_filesystem

        def init_watched(calls: FileCalls, **given: Any) -> None:
            watched = {"fsync": self._watch(fsync), "fdatasync": self._watch(os.fdatasync)}
            init(calls, **{**watched, **given})

        FileCalls.__init__ = init_watched  # type: ignore[method-assign,assignment]  # planted
        os.fsync = self._watch(fsync)  # type: ignore[assignment]
        tree._sync_filesystem = self._watch(syncfs, is_folder=False)  # type: ignore[assignment]

    def _watch(
        self, sync: Callable[[int], None], *, is_folder: bool | None = None
    ) -> Callable[[int], None]:
        def watched(fd: int) -> None:
            self._count += 1
            if self._count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            folder = stat.S_ISDIR(os.fstat(fd).st_mode) if is_folder is None else is_folder
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            if self.bug is None or not self.bug.skips(path, is_folder=folder):
                sync(fd)

        return watched
