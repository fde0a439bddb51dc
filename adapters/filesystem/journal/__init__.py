"""Download journals on disk."""
