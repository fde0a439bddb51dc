"""PMTiles tile numbers: zoom level by zoom level, each along a Hilbert curve."""

BLOCK_LEVELS = 5
"""A block is 32 by 32 tiles, or a whole level that has fewer. Its numbers are contiguous."""


def get_level_start(zoom: int) -> int:
    """Return the first number of a level: the number of tiles of all lower levels."""
    return ((1 << 2 * zoom) - 1) // 3


def zxy_to_number(zoom: int, x: int, y: int) -> int:
    position = 0
    for bit in range(zoom - 1, -1, -1):
        right, low = x >> bit & 1, y >> bit & 1
        position = position << 2 | (3 * right ^ low)
        if not low:  # the curve is rotated in the upper quadrants; only the lower bits matter
            x, y = (~y, ~x) if right else (y, x)
    return get_level_start(zoom) + position


def number_to_zxy(number: int) -> tuple[int, int, int]:
    zoom = ((3 * number + 1).bit_length() - 1) // 2
    position = number - get_level_start(zoom)
    x = y = 0
    for bit in range(zoom):
        quadrant = position >> 2 * bit & 3
        right = quadrant >> 1
        low = quadrant & 1 ^ right
        if not low:
            last = (1 << bit) - 1
            x, y = (last - y, last - x) if right else (y, x)
        x |= right << bit
        y |= low << bit
    return zoom, x, y


def find_block_start(zoom: int, x: int, y: int) -> int:
    """Return the first number of the block that contains a tile."""
    levels = min(zoom, BLOCK_LEVELS)
    number = zxy_to_number(zoom - levels, x >> levels, y >> levels) - get_level_start(zoom - levels)
    return get_level_start(zoom) + (number << 2 * levels)


def get_block_tiles(start: int) -> tuple[int, range, range]:
    """Return the level, columns and rows of the block that starts at a number."""
    zoom, x, y = number_to_zxy(start)
    side = 1 << min(zoom, BLOCK_LEVELS)
    x, y = x - x % side, y - y % side
    return zoom, range(x, x + side), range(y, y + side)
