"""A cache's id, in a file beside its tiles."""

from pathlib import Path

from attrs import field, frozen

from tileferry.adapters.filesystem.files import Directory, FileCalls, translated
from tileferry.adapters.filesystem.replace import replace_file
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles.bound_cache import CacheId, cache_id_from

_FOLDER = ".c11"
_NAME = "cache-id"
_BYTES_MAX = 1024


@frozen(kw_only=True)
class FileCacheMark:
    """The id in ``<root>/.c11/cache-id``."""

    root: Path
    calls: FileCalls = field(factory=FileCalls)

    def read(self) -> CacheId | None:
        """Return the id, if the cache has one; nothing is changed."""
        with translated("examine", self.root):
            is_there = self.root.exists()
        if not is_there:
            return None
        with Directory.open_root(self.root, self.calls) as root:
            folder = root.find_subdirectory(_FOLDER)
        if folder is None:
            return None
        with folder:
            file = folder.find_file(_NAME)
        if file is None:
            return None
        with file:
            written = file.pread(_BYTES_MAX, 0)
        cache_id = cache_id_from(written.decode("ascii", "replace").removesuffix("\n"))
        if cache_id is None:
            raise StorageError(
                action="read",
                path=str(file.path),
                problem="is no id of a cache",
                remedy="restore it from a backup, or remove it and run again",
            )
        return cache_id

    def write(self, cache_id: CacheId) -> None:
        """Give the cache its id; it is durable when this returns."""
        with (
            Directory.open_root(self.root, self.calls) as root,
            root.subdirectory(_FOLDER) as folder,
        ):
            replace_file(folder, _NAME, f"{cache_id}\n".encode("ascii"))
