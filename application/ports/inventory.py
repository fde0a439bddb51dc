"""What operators ask about the tiles of a cache: counts, giveups, damage, images."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Protocol

from tileferry.domain.tiles import TileId, TileMetadata, VotingStatus


class TileInventory(Protocol):
    """Counts and lists visible tiles."""

    def count(self) -> int:
        """Return how many tiles there are."""
        ...

    def count_pending(self, flight_id: str) -> int:
        """Return how many tiles of a flight wait for their upload."""
        ...

    def count_stored_for_flight(self, flight_id: str) -> int:
        """Return how many tiles were last stored for a flight."""
        ...

    def count_captured(self, flight_id: str) -> Mapping[VotingStatus, int]:
        """Return how many tiles a flight captured, by voting status."""
        ...

    def find_given_up(self, flight_id: str | None = None) -> Iterator[TileMetadata]:
        """Yield the tiles whose upload was given up, of one flight or of all, by flight."""
        ...


class TileImages(Protocol):
    """Writes copies of tiles that a human can open."""

    def extract(self, tile_id: TileId, content: bytes) -> PurePath:
        """Write a tile to a file, and return its path."""
        ...
