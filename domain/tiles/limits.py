"""Limits of tiles and requests, and their defaults. Settings are declared with them."""

TILE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum size of a tile. A larger one is rejected before it is read."""
AREA_TILES_MAX = 50_000_000
"""About 6 MB as a bit set and 1 TB of imagery. A larger area is certainly a mistake."""
BATCH_TILES_MAX = 1_000
MIN_M_PER_PX = 0.5
TILE_PX = 256
"""The usual side of a tile."""
REQUESTS_PER_S_MIN = 0.01
REQUESTS_PER_S_MAX = 100.0
REQUESTS_PER_S = 5.0
"""The default rate of requests to a plain tile server, low enough for one with many users."""
TILES_PER_DOWNLOAD = 100_000
ESTIMATED_TILE_BYTES = 25_000
