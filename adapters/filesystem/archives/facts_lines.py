"""The lines of ``tiles.jsonl`` in a tree archive: one JSON object per tile."""

import json

from tileferry.domain.archives import TileFacts
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


def parse_facts_line(line: bytes, *, number: int, source: str) -> tuple[TileId, TileFacts]:
    """Parse a line; errors contain its number."""
    path = f"tiles.jsonl, line {number}"
    data = JsonObject.from_value(parse_json(line, field=path, bytes_max=LINE_BYTES_MAX), path)
    with data.locate_errors("tile"):
        tile = TileId.parse(f"{source}/{data.get('tile', str)}")
    with data.locate_errors():
        facts = TileFacts.parse(*(data.fields.get(name) for name in _FACTS))
    return tile, facts
