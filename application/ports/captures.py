"""A folder of captured tiles."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

from attrs import frozen

from tileferry.domain.tiles.capture import TileScheme


@frozen(kw_only=True)
class CaptureFile:
    """A file that may be a tile."""

    parts: tuple[str, ...]
    """Its path below the folder."""
    size_bytes: int
    changed_at: datetime
    scheme: TileScheme = TileScheme.XYZ
    """How its folder counts rows."""
    is_regular: bool = True
    """Whether it is a regular file, not a link or a device."""

    @property
    def path(self) -> str:
        """Its path, for people."""
        return "/".join(self.parts)


class CaptureFolder(Protocol):
    """Reads a copy of an aircraft's storage."""

    def read_facts(self) -> bytes | None:
        """Return the content of ``metadata.json``, if it exists."""
        ...

    def iter_files(self) -> Iterator[CaptureFile]:
        """Yield all other files in order; skip links, devices and ``is_litter`` files."""
        ...

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        """Return a file's content, up to ``bytes_max`` + 1 bytes."""
        ...
