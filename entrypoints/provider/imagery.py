"""The images that the provider serves: 256 pixels a side, always the same bytes for a tile."""

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
"""The listing's estimate for every tile, so that listing draws no images."""
KEPT_TILES_MAX = 20_000
_QUALITY = 88
_LABEL_PX = 17


@frozen(slots=True)
class TileImage:
    """A tile's bytes and their digest in the form of the ``Repr-Digest`` header."""

    content: bytes
    repr_digest: str

    @classmethod
    def from_content(cls, content: bytes) -> "TileImage":
        """Compute the digest of the content."""
        return cls(content, compute_repr_digest(content))


def compute_repr_digest(content: bytes) -> str:
    """Return the digest in the form of RFC 9530."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode('ascii')}:"


class TileImageCache:
    """Draws each tile once and keeps the most recent ones."""

    def __init__(self, kept_max: int = KEPT_TILES_MAX) -> None:
        self._kept: OrderedDict[TileId, TileImage] = OrderedDict()
        self._kept_max = kept_max
        self._lock = Lock()

    def find(self, tile: TileId) -> TileImage | None:
        """Return the image if it is cached."""
        with self._lock:
            picture = self._kept.get(tile)
            if picture is not None:
                self._kept.move_to_end(tile)
            return picture

    def get_or_draw(self, tile: TileId) -> TileImage:
        """Return the image, drawing it if needed, which takes some milliseconds."""
        picture = self.find(tile)
        if picture is None:
            picture = TileImage.from_content(draw_tile(tile.zoom, tile.x, tile.y))
            with self._lock:
                self._kept[tile] = picture
                while len(self._kept) > self._kept_max:
                    self._kept.popitem(last=False)
        return picture


def draw_tile(zoom: int, x: int, y: int) -> bytes:
    """Draw one tile with its id in the corner."""
    image = Landscape(zoom, x, y).draw()
    ImageDraw.Draw(image).text(
        (8, 6),
        f"{zoom}/{x}/{y}",
        font=_load_font(),
        fill="white",
        stroke_width=2,
        stroke_fill="#203020",
    )
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


@lru_cache(maxsize=1)
def _load_font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_LABEL_PX)
