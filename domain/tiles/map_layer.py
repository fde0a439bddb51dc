"""The layers of a map made from the cache: one for each source, and one of all together."""

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.tile_range import TileRange
from tileferry.domain.validation import as_tuple, integer

MERGED_LAYER = "merged"
"""The freshest tile of any source at each place. A source of this name has no own layer."""


@frozen(kw_only=True)
class LayerLevel:
    """The stored tiles of one zoom level: the rectangle around them, and their number."""

    extent: TileRange
    tiles: int = field(validator=integer(1))

    @property
    def zoom(self) -> int:
        return self.extent.zoom


@frozen(kw_only=True)
class MapLayer:
    """The stored tiles of one source, or of all."""

    name: str
    levels: Sequence[LayerLevel] = field(converter=as_tuple)
    """Ascending by zoom level; never empty."""

    @property
    def zoom_min(self) -> int:
        return self.levels[0].zoom

    @property
    def zoom_max(self) -> int:
        return self.levels[-1].zoom

    @property
    def tiles(self) -> int:
        return sum(level.tiles for level in self.levels)

    @property
    def bounds(self) -> BBox:
        """The area of the finest level: coarser tiles reach far beyond what was requested."""
        return self.levels[-1].extent.bounds


def merge_layers(layers: Iterable[MapLayer]) -> MapLayer | None:
    """Return the layer of all sources; ``None`` if there are no tiles.

    A place with tiles of two sources counts twice.
    """
    by_zoom: dict[int, LayerLevel] = {}
    for level in (level for layer in layers for level in layer.levels):
        known = by_zoom.get(level.zoom)
        by_zoom[level.zoom] = level if known is None else _join_levels(known, level)
    if not by_zoom:
        return None
    return MapLayer(name=MERGED_LAYER, levels=[by_zoom[zoom] for zoom in sorted(by_zoom)])


def _join_levels(one: LayerLevel, other: LayerLevel) -> LayerLevel:
    first, second = one.extent, other.extent
    return LayerLevel(
        extent=TileRange(
            zoom=first.zoom,
            x_min=min(first.x_min, second.x_min),
            x_max=max(first.x_max, second.x_max),
            y_min=min(first.y_min, second.y_min),
            y_max=max(first.y_max, second.y_max),
        ),
        tiles=one.tiles + other.tiles,
    )
