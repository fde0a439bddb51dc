"""Tiles on their way: downloads, captures, uploads, and what is seen of them meanwhile."""
