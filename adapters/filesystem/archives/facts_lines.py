"""The facts of tiles as JSON lines, beside tiles whose format has no place for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from attrs import define, field

from tileferry.adapters.filesystem.files import translate_os_errors
from tileferry.domain.archives import TileFacts
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles import TileId

LINE_BYTES_MAX = 1_024
_FACTS = ("produced_at", "resolution_m_per_px", "sha256")


def format_facts_line(tile: TileId, facts: TileFacts) -> bytes:
    fields = {
        "tile": f"{tile.zoom}/{tile.x}/{tile.y}",
        **dict(zip(_FACTS, facts.to_texts(), strict=True)),
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def parse_facts_line(line: bytes, *, place: str, source: str) -> tuple[TileId, TileFacts]:
    """Parse a line; errors contain its place."""
    data = JsonObject.from_value(parse_json(line, field=place, bytes_max=LINE_BYTES_MAX), place)
    with data.locate_errors("tile"):
        tile = TileId.parse(f"{source}/{data.get('tile', str)}")
    with data.locate_errors():
        facts = TileFacts.parse(*(data.fields.get(name) for name in _FACTS))
    return tile, facts


@define(kw_only=True)
class TileFactsReader:
    """Looks up the facts of tiles.

    Tiles and lines are both in ascending order, so only one line is in memory.
    """

    file: IO[bytes] | None
    """Positioned at its first line."""
    place: Path
    source: str
    of_all: TileFacts = field(factory=TileFacts)
    """Facts of a tile without a line."""
    get_position: Callable[[TileId], Any] = lambda tile: tile
    """Returns what the lines are sorted by."""
    _current: tuple[Any, TileFacts] | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)

    def find(self, tile: TileId) -> TileFacts:
        """Return the facts of a tile; tiles must be looked up in ascending order."""
        wanted = self.get_position(tile)
        while not self._number or (self._current is not None and self._current[0] < wanted):
            self._advance()
        if self._current is not None and self._current[0] == wanted:
            return self._current[1]
        return self.of_all

    def _advance(self) -> None:
        with translate_os_errors("read", self.place):
            line = b"" if self.file is None else self.file.readline(LINE_BYTES_MAX + 1)
        self._number += 1
        if not line:
            self._current = None
            return
        try:
            tile, facts = parse_facts_line(
                line, place=f"{self.place.name}, line {self._number}", source=self.source
            )
        except InvalidValueError as error:
            raise self._error(str(error)) from error
        position = self.get_position(tile)
        if self._current is not None and position <= self._current[0]:
            raise self._error(f"line {self._number} is not sorted by zoom, column and row")
        self._current = position, facts

    def _error(self, problem: str) -> ArchiveError:
        return ArchiveError(
            path=str(self.place),
            problem=problem,
            remedy="remove that file to import the tiles without it, or get the archive again",
        )
