"""The disk under a folder."""

import shutil
from pathlib import Path

from attrs import frozen

from tileferry.domain.errors import StorageError


@frozen
class SystemDisk:
    """Asks the operating system."""

    folder: Path

    def free_bytes(self) -> int:
        """Return what this user can still write."""
        return self._usage().free

    def total_bytes(self) -> int:
        """Return its size."""
        return self._usage().total

    def _usage(self) -> "shutil._ntuple_diskusage":
        try:
            return shutil.disk_usage(self.folder)
        except OSError as error:
            raise StorageError(
                action="look at the disk of",
                path=str(self.folder),
                problem=error.strerror or str(error),
                remedy="check that the folder exists and can be read",
            ) from error
