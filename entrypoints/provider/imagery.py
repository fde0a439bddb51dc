"""The pictures that the provider serves: 256 pixels a side, the same bytes for a tile always."""

import io
from base64 import b64encode
from collections import OrderedDict
from functools import lru_cache
from hashlib import sha256
from threading import Lock

from attrs import frozen
from PIL import ImageDraw, ImageFont

from tileferry.domain.tiles import TileId
from tileferry.entrypoints.provider.landscape import Landscape

CONTENT_TYPE = "image/jpeg"
ESTIMATED_BYTES = 16_000
"""What the listing says of every tile: nobody draws a picture in order to list it."""
KEPT_TILES_MAX = 20_000
_QUALITY = 88
_LABEL_PX = 17


@frozen(slots=True)
class Picture:
    """A tile's bytes, and their digest as the header ``Repr-Digest`` writes it."""

    content: bytes
    repr_digest: str

    @classmethod
    def of(cls, content: bytes) -> "Picture":
        """Add the digest."""
        return cls(content, repr_digest(content))


def repr_digest(content: bytes) -> str:
    """Return the digest of RFC 9530."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode('ascii')}:"


class Imagery:
    """Draws each tile once, and keeps the most recent ones."""

    def __init__(self, kept_max: int = KEPT_TILES_MAX) -> None:
        self._kept: OrderedDict[TileId, Picture] = OrderedDict()
        self._kept_max = kept_max
        self._lock = Lock()

    def kept(self, tile: TileId) -> Picture | None:
        """Return the picture when it is at hand."""
        with self._lock:
            picture = self._kept.get(tile)
            if picture is not None:
                self._kept.move_to_end(tile)
            return picture

    def drawn(self, tile: TileId) -> Picture:
        """Return the picture, and draw it when need be; this takes some milliseconds."""
        picture = self.kept(tile)
        if picture is None:
            picture = Picture.of(draw_tile(tile.zoom, tile.x, tile.y))
            with self._lock:
                self._kept[tile] = picture
                while len(self._kept) > self._kept_max:
                    self._kept.popitem(last=False)
        return picture


def draw_tile(zoom: int, x: int, y: int) -> bytes:
    """Draw one tile, with its name in the corner."""
    image = Landscape(zoom, x, y).drawn()
    ImageDraw.Draw(image).text(
        (8, 6), f"{zoom}/{x}/{y}", font=_font(), fill="white", stroke_width=2, stroke_fill="#203020"
    )
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_LABEL_PX)
