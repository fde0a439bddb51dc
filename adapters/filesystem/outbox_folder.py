"""The folder of the outboxes of audit events. Every command checks whether there are any."""

import os
from pathlib import Path

OUTBOX_FOLDERS = (".c11", "audit-outbox")


def has_outboxes(root: Path) -> bool:
    """Return whether any event ever had to wait."""
    return os.path.lexists(root.joinpath(*OUTBOX_FOLDERS))
