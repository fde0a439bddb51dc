"""Download the tiles of an area into the cache."""
