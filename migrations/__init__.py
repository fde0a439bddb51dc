"""The database schema, step by step, shipped inside the wheel.

Append-only: a migration that was released is never edited; the next one follows it. Each can be
taken back. They are written in SQL of their own and import nothing of the product, so that they
still run as they were written when the code around them has moved on.
"""

from pathlib import Path

LOCATION = Path(__file__).parent
REVISIONS = tuple(sorted(path.name[1:5] for path in (LOCATION / "versions").glob("v*.py")))
"""Every step, the first one first: a file is named by its own, ``v0001_tiles.py``."""
