"""The kinds of archives, and how they differ in where they put a tile."""

from enum import StrEnum


class ArchiveFormat(StrEnum):
    """What other tools read."""

    TREE = "tree"
    MBTILES = "mbtiles"
    PMTILES = "pmtiles"


class TileOrder(StrEnum):
    """In which order a format takes its tiles."""

    COLUMNS = "columns"
    """Level by level, column by column, as the cache lists them."""
    CURVE = "curve"
    """Level by level, along the Hilbert curve."""


def format_of(name: str) -> ArchiveFormat:
    """Return the format that a file's name tells by its suffix; without one it is a folder."""
    suffix = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    return ArchiveFormat(suffix) if suffix in {"mbtiles", "pmtiles"} else ArchiveFormat.TREE


def flipped_row(zoom: int, row: int) -> int:
    """Return a row counted from the other edge: MBTiles counts from the south, and we do not."""
    return (1 << zoom) - 1 - row
