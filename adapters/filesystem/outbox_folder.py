"""Where the outboxes of audit events are. Every command looks whether there are any."""

import os
from pathlib import Path

OUTBOX_FOLDERS = (".c11", "audit-outbox")


def has_outboxes(root: Path) -> bool:
    """Return whether any event ever had to wait."""
    return os.path.lexists(root.joinpath(*OUTBOX_FOLDERS))
