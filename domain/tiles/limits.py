"""Limits of tiles and requests, and their defaults. Settings are declared with them."""

TILE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum size of a tile. A larger one is rejected before it is read."""
AREA_TILES_MAX = 50_000_000
"""About 6 MB as a bit set and 1 TB of imagery. A larger area is certainly a mistake."""
AREA_RANGES_MAX = 100_000
"""The tiles of a shape are stored as ranges of its columns; this many take 20 MB."""
SHAPE_VERTICES_MAX = 20_000
"""About 250 KB in a flight, a run or a manifest."""
SHAPE_CHARS_MAX = SHAPE_VERTICES_MAX * 24
SHAPE_STEPS_MAX = 2_000_000
"""How many columns the edges of a shape may cross in total; they take some seconds."""
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
