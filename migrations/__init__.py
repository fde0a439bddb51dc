"""Database migrations, shipped inside the wheel.

Append-only: a released migration is never edited, and each one can be reverted. Migrations contain
their own SQL and import nothing from the product, so that they still run unchanged when the code
changes.
"""

from pathlib import Path

LOCATION = Path(__file__).parent
REVISIONS = tuple(sorted(path.name[1:5] for path in (LOCATION / "versions").glob("v*.py")))
"""All revisions, oldest first; a file name starts with its revision, as in ``v0001_tiles.py``."""
