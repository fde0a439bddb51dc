"""Cuts a part out of a coarser tile and enlarges it, in place of a tile that is missing."""

import io

from PIL import Image, UnidentifiedImageError

from tileferry.application.cache.map_service import ParentTile
from tileferry.domain.tiles.picture import SIDE_PX_MAX

SIDE_PX = 256


def enlarge_part(parent: ParentTile) -> bytes | None:
    """Return the part as a PNG; ``None`` if the parent is not a picture."""
    try:
        with Image.open(
            io.BytesIO(parent.tile.content), formats=["JPEG", "PNG", "WEBP"]
        ) as picture:
            if picture.width * picture.height > SIDE_PX_MAX**2:
                return None
            width = picture.width / (1 << parent.levels)
            height = picture.height / (1 << parent.levels)
            left, top = parent.column * width, parent.row * height
            part = picture.convert("RGBA").resize(
                (SIDE_PX, SIDE_PX),
                Image.Resampling.BILINEAR,
                box=(left, top, left + width, top + height),
            )
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        return None
    content = io.BytesIO()
    part.save(content, "PNG")
    return content.getvalue()
