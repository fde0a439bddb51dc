"""Raw partitions on disk."""
