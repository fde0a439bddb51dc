"""A folder of captured tiles."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

from attrs import frozen


@frozen(kw_only=True)
class CaptureFile:
    """A file that may be a tile."""

    parts: tuple[str, ...]
    """Its path below the folder."""
    size_bytes: int
    changed_at: datetime
    is_regular: bool = True
    """Whether it is a file at all: a link or a device is named only to who asks for those."""

    @property
    def path(self) -> str:
        """Its path, for people."""
        return "/".join(self.parts)


class CaptureFolder(Protocol):
    """Reads what an aircraft's storage was copied to."""

    def read_facts(self) -> bytes | None:
        """Return what ``metadata.json`` holds, if there is one."""
        ...

    def iter_files(self) -> Iterator[CaptureFile]:
        """Yield all other files, in order; links, devices and ``is_litter`` are no files."""
        ...

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        """Return a file's bytes, and one more than ``bytes_max`` at most."""
        ...
