"""An operator's day, played."""
