"""Disk space."""

import shutil
from pathlib import Path

from attrs import frozen

from tileferry.domain.errors import StorageError


@frozen
class SystemDisk:
    """The file system that contains ``folder``."""

    folder: Path

    def free_bytes(self) -> int:
        """Return the space this user can still write."""
        return self._usage().free

    def total_bytes(self) -> int:
        return self._usage().total

    def _usage(self) -> "shutil._ntuple_diskusage":
        try:
            return shutil.disk_usage(self.folder)
        except OSError as error:
            raise StorageError(
                action="read the disk usage of",
                path=str(self.folder),
                problem=error.strerror or str(error),
                remedy="check that the folder exists and can be read",
            ) from error
