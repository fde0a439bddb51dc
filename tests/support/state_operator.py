"""Partitions in a bad way, and what operators and the audit say of them."""

import getpass
import io
import socket

from support.operator import Ran
from support.work_desk import Desk, acquire, key
from support.work_operator import (
    judged,
    partition_at,
)
from tileferry.domain.actors import Actor
from tileferry.domain.audit import StateChanged
from tileferry.domain.partitions import PartitionStatus

MARCH = ("--from", "2026-03-01", "--to", "2026-03-31")
REASON = ("--reason", "the link is back")


def enqueued(desk: Desk, days: int) -> None:
    works = [acquire(key(day)) for day in range(1, days + 1)]
    desk.partitions.enqueue(works, actor=Actor.OPERATOR)


def failed(desk: Desk, days: int) -> None:
    """Have the first days of a month, of which the validator rejected all."""
    enqueued(desk, days)
    for _ in range(days):
        judged(desk)


def statuses(desk: Desk, days: int) -> list[PartitionStatus]:
    return [partition_at(desk, key(day)).status for day in range(1, days + 1)]


def overrides(desk: Desk) -> list[StateChanged]:
    """What the audit log has of operators who gave a reason."""
    return [
        event
        for event in desk.events()
        if isinstance(event, StateChanged) and event.actor == "operator" and event.reason
    ]


def refused(ran: Ran, code: int, *words: str) -> None:
    assert (ran.code, ran.out) == (code, ""), ran
    said = " ".join(ran.err.replace("│", " ").split())
    for word in words:
        assert word in said


class Terminal(io.StringIO):
    """Somebody at a keyboard."""

    def isatty(self) -> bool:
        return True


def me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
