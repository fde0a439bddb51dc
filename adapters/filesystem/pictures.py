"""Single tiles as files, for people to look at."""

from pathlib import Path

from attrs import frozen

from tileferry.adapters.filesystem.files import Directory, FileCalls
from tileferry.adapters.filesystem.replace import replace_file
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId, image_kind


@frozen
class PictureFolder:
    """Writes tiles to ``<root>/.c11/pictures``; they are copies, and may be removed at any time."""

    root: Path

    def extract(self, tile_id: TileId, content: bytes) -> Path:
        """Write a tile, and return where it is."""
        try:
            kind = image_kind(content)
        except InvalidValueError:
            kind = "bin"  # which may be why nobody wanted it
        name = f"{str(tile_id).replace('/', '_')}.{kind}"
        with (
            Directory.open_root(self.root, FileCalls()) as top,
            top.subdirectory(".c11") as ours,
            ours.subdirectory("pictures") as pictures,
        ):
            replace_file(pictures, name, content)
            return pictures.path / name
