"""``tiles.jsonl`` of a tree, read along with its tiles."""

import os
from pathlib import Path
from typing import IO

from attrs import define, field

from tileferry.adapters.filesystem.files import Directory, FileCalls
from tileferry.domain.archives import LINE_BYTES_MAX, TileFacts, parse_facts_line
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.tiles import TileId

FACTS = "tiles.jsonl"


@define(kw_only=True)
class FactLines:
    """Finds the line of each tile. Tiles and lines both ascend, so one line is held at a time."""

    root: Path
    source: str
    of_all: TileFacts
    """What is true of a tile that has no line."""
    _file: IO[bytes] | None = field(init=False)
    _current: tuple[TileId, TileFacts] | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        with Directory.open_root(self.root, FileCalls()) as folder:
            found = folder.find_file(FACTS)
        self._file = None if found is None else os.fdopen(found.fd, "rb")

    def of(self, tile: TileId) -> TileFacts:
        """Return what is said of a tile."""
        while not self._number or (self._current is not None and self._current[0] < tile):
            self._advance()
        if self._current is not None and self._current[0] == tile:
            return self._current[1]
        return self.of_all

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _advance(self) -> None:
        line = b"" if self._file is None else self._file.readline(LINE_BYTES_MAX + 1)
        self._number += 1
        if not line:
            self._current = None
            return
        try:
            following = parse_facts_line(line, number=self._number, source=self.source)
        except InvalidValueError as error:
            raise self._spoilt(str(error)) from error
        if self._current is not None and following[0] <= self._current[0]:
            raise self._spoilt(f"line {self._number} is not in the order of zoom, column and row")
        self._current = following

    def _spoilt(self, problem: str) -> ArchiveError:
        return ArchiveError(
            path=str(self.root / FACTS),
            problem=problem,
            remedy="remove that file to import the tiles without it, or get the folder again",
        )
