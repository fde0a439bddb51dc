"""A small file, put in the place of another at once or not at all."""

from atomicwrites import AtomicWriter

from tileferry.adapters.filesystem.files import Directory, OpenFile


def replace_file(directory: Directory, name: str, content: bytes) -> None:
    """Make ``content`` the file ``name``, durably.

    After an error the file has either content; no part of one, and no other.
    """
    with _WriterBelow(directory, name).open() as file:
        file.write_all(content)


class _WriterBelow(AtomicWriter):
    """Write-then-rename as atomicwrites does it, by names below an open directory.

    The library works with paths, and a path can be led astray by a symbolic link on its way.
    """

    def __init__(self, directory: Directory, name: str) -> None:
        super().__init__(name, mode="wb", overwrite=True)
        self._directory = directory
        self._name = name
        # One name, not a random one, so that a crash leaves one file behind, not one each time.
        self._temporary = f"{name}.tmp"

    def get_fileobject(self) -> OpenFile:
        if self._temporary in self._directory.names():
            self._directory.unlink(self._temporary)
        return self._directory.create_file(self._temporary)

    def sync(self, f: OpenFile) -> None:
        f.fdatasync()

    def commit(self, f: OpenFile) -> None:  # noqa: ARG002  # the library's signature
        self._directory.rename(self._temporary, self._name)
        self._directory.sync()

    def rollback(self, f: OpenFile | None) -> None:
        if f is not None:
            self._directory.unlink(self._temporary)
