"""The database schema, step by step, shipped inside the wheel."""
