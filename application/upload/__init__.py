"""Upload the captured tiles of a flight."""
