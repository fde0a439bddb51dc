"""Tile blobs in append-only segment files."""
