"""Whether two collections of tiles are the same, without holding either."""

from hashlib import sha256

from attrs import define

from tileferry.domain.tiles.tile_id import TileId

_MODULUS = 1 << 256


@define
class ContentTally:
    """Counts tiles and adds up a digest of each: equal tallies have equal tiles, in any order."""

    tiles: int = 0
    total: int = 0

    def add(self, tile: TileId, digest: bytes) -> None:
        """Count a tile by its place and the sha256 of its bytes."""
        one = sha256(b"%d/%d/%d " % (tile.zoom, tile.x, tile.y) + digest).digest()
        self.tiles += 1
        self.total = (self.total + int.from_bytes(one, "big")) % _MODULUS
