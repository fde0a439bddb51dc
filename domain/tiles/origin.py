"""Which server delivered a tile, if it filled a hole in the tile's source."""

from attrs import field, frozen

from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import instance, name, sha256_hex


@frozen(kw_only=True)
class TileOrigin:
    """The source that delivered one version of a tile, instead of the one in its id."""

    tile_id: TileId = field(validator=instance(TileId))
    sha256: str = field(validator=sha256_hex)
    """The version: another one may have come from elsewhere."""
    origin: str = field(validator=name)
