"""A file that logs its block writes and flushes, as a FUSE file system; runs as a process.

``python -m powerloss.block_log MOUNTPOINT IMAGE LOG`` serves ``MOUNTPOINT/disk``, which begins with
the bytes of IMAGE. IMAGE itself does not change.
"""

import errno
import stat
import sys
import time
from pathlib import Path
from typing import Any

import mfusepy

from powerloss.block_events import HEADER, EventKind
from powerloss.storage import DISK


class LoggedFile(mfusepy.Operations):  # type: ignore[misc]  # it has no types
    """A folder with one file; each request is logged before it is answered."""

    use_ns = True

    def __init__(self, image: Path, log: Path) -> None:
        self.content = bytearray(image.read_bytes())
        self.log = log.open("wb", buffering=1 << 20)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:  # noqa: ARG002  # signature of FUSE
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path == f"/{DISK}":
            return {
                "st_mode": stat.S_IFREG | 0o600,
                "st_nlink": 1,
                "st_size": len(self.content),
            }
        raise mfusepy.FuseOSError(errno.ENOENT)

    def readdir(self, path: str, fh: int) -> list[str]:  # noqa: ARG002
        return [".", "..", DISK]

    def open(self, path: str, flags: int) -> int:  # noqa: ARG002
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:  # noqa: ARG002
        return bytes(self.content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:  # noqa: ARG002
        self._log(EventKind.WRITE, offset, data)
        self.content[offset : offset + len(data)] = data
        return len(data)

    def fsync(self, path: str, datasync: int, fh: int) -> int:  # noqa: ARG002
        self._log(EventKind.FLUSH, 0, b"")
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:  # noqa: ARG002
        return 0

    def destroy(self, path: str) -> None:  # noqa: ARG002
        self.log.close()

    def _log(self, kind: EventKind, offset: int, data: bytes) -> None:
        self.log.write(HEADER.pack(kind, time.time(), offset, len(data)) + data)


if __name__ == "__main__":
    logged = LoggedFile(Path(sys.argv[2]), Path(sys.argv[3]))
    mfusepy.FUSE(logged, sys.argv[1], foreground=True, nothreads=True)
