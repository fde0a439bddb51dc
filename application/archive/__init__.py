"""Export the cache to archives and import archives into it."""
