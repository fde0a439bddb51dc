"""The lines of ``tiles.jsonl``."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tileferry.adapters.filesystem.archives.facts_lines import (
    TileFactsReader,
    format_facts_line,
    parse_facts_line,
)
from tileferry.adapters.filesystem.files import close_after_reading
from tileferry.domain.archives import TileFacts
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.tiles import TileId

TILE = TileId(source="sat", zoom=3, x=1, y=2)


def test_tile_facts_round_trip_through_line() -> None:
    facts = TileFacts(
        produced_at=datetime(2026, 6, 1, 12, 30, tzinfo=UTC),
        resolution_m_per_px=0.6,
        sha256="ab" * 32,
    )
    line = format_facts_line(TILE, facts)
    assert line.endswith(b"}\n")
    assert parse_facts_line(line, place="tiles.jsonl, line 1", source="sat") == (TILE, facts)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[]", "must be an object"),
        (b'{"tile": 7}', "line 4.tile: must be text"),
        (b'{"tile": "3/9/9"}', "line 4.tile"),
        (b'{"tile": "../x"}', "line 4.tile"),
        (b'{"tile": "3/1/1", "produced_at": 7}', "must be a time in text"),
        (b'{"tile": "3/1/1", "produced_at": "soon"}', "ISO 8601"),
        (b'{"tile": "3/1/1", "resolution_m_per_px": true}', "must be a number"),
        (b'{"tile": "3/1/1", "resolution_m_per_px": -1}', "resolution_m_per_px"),
        (b'{"tile": "3/1/1", "sha256": "short"}', "sha256"),
        (b'{"tile": "' + b"3" * 2_000 + b'"}', "longer than"),
    ],
)
def test_invalid_facts_line_is_rejected_with_line_number(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem) as caught:
        parse_facts_line(line, place="tiles.jsonl, line 4", source="sat")
    assert "line 4" in str(caught.value)


def test_disk_error_of_the_facts_is_explained_and_one_at_close_is_ignored() -> None:
    path = Path("/proc/self/mem")  # its first page gives EIO
    with close_after_reading(path.open("rb")) as file:
        reader = TileFactsReader(file=file, place=path, source="satellite")
        with pytest.raises(StorageError, match="cannot read /proc/self/mem: Input/output error"):
            reader.find(TILE)
        assert file is not None
        os.close(file.fileno())
