"""What an operator shows before overriding the policy: who, why, and how many are meant."""

import getpass
import os
import socket
import sys

from tileferry.application.control.partition_control import Override
from tileferry.domain.checks import is_unicode
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import LARGE_RANGE
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.output import notes


def operator_name() -> str:
    """Say who is at the keyboard: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        user = f"uid-{os.getuid()}"
    return printable(f"{user}@{socket.gethostname()}")


def checked_reason(reason: str) -> str:
    """Refuse what tells nobody anything."""
    if not (reason.strip() and is_unicode(reason)):
        raise InvalidValueError(
            field="--reason",
            value=reason,
            problem="must be text that says why",
            remedy="whoever reads the audit log later will want to know",
        )
    return reason.strip()


def override_of(count: int, *, what: str, reason: str, confirm: int | None) -> Override:
    """Return the operator's word on an action that touches ``count`` partitions.

    At a terminal the number of a large range is asked for; whether it is right is not judged here.
    """
    if confirm is None and count >= LARGE_RANGE and sys.stdin.isatty():
        confirm = _typed(f"This will {what} {count} partitions. Type the count to go on: ")
    return Override(by=operator_name(), reason=checked_reason(reason), confirmed=confirm)


def _typed(question: str) -> int | None:
    notes.print(question, end="")
    answer = sys.stdin.readline().strip()
    return int(answer) if answer.isascii() and answer.isdecimal() else None
