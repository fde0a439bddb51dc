"""What a tile server says about itself, in its TileJSON or WMTS document."""

import re
from collections.abc import Mapping

from attrs import evolve, frozen

from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.limits import TILE_PX
from tileferry.domain.tiles.server_url import KEY_PLACE, ServerUrl, encode_key
from tileferry.domain.tiles.tile_id import ZOOM_MAX
from tileferry.domain.tiles.tile_template import TileTemplate


@frozen(kw_only=True)
class TileDescription:
    """The description of one layer of tiles."""

    template: str
    """The address of a tile, with ``{z}``, ``{x}`` and ``{y}`` or ``{-y}``."""
    zooms: range = range(ZOOM_MAX + 1)
    bounds: BBox | None = None
    tile_px: int = TILE_PX
    zoom_names: Mapping[int, str] | None = None
    """What the server calls its zoom levels, if not by their numbers."""

    def build_template(self, document: ServerUrl, *, key: str, tile_px: int | None) -> TileTemplate:
        """Return the template of the tiles that a document describes.

        A server repeats the key of the request in its answer; the template has its place instead.
        """
        text = self.template
        if document.has_key:
            for form in (encode_key(key), key):
                text = re.sub(rf"(?<=[=/]){re.escape(form)}(?=[&/?]|$)", KEY_PLACE, text)
        template = TileTemplate(
            text,
            setting=document.setting,
            plain_http_hosts=document.plain_http_hosts,
            zoom_names=self.zoom_names,
        )
        side_px = tile_px or (self.tile_px if self.tile_px != TILE_PX else template.tile_px)
        return evolve(template, tile_px=side_px)
