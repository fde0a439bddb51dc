"""Processes that write a journal, or a flight recorder, until they are killed."""

import logging
import random
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path

from attrs import frozen

from tileferry.adapters.filesystem.fdr import FileFdrClient
from tileferry.adapters.filesystem.journal.store import FileJournalStore
from tileferry.adapters.memory import ManualClock
from tileferry.domain.tiles import TileCoverage, TileSet


@frozen(kw_only=True)
class JournalPlan:
    """What to write into a journal: groups of any size."""

    root: Path
    name: str
    area: TileCoverage
    group_max: int
    seed: int


def write_journal(plan: JournalPlan, told: Connection) -> None:
    """Append what is missing, and tell after each flush how many tiles are journaled."""
    chance = random.Random(plan.seed)  # noqa: S311  # a test that repeats itself
    journal = FileJournalStore(root=plan.root, logger=logging.getLogger()).open(plan.name)
    done = TileSet(plan.area)
    journal.read_into(done)
    missing = done.iter_missing("sat")
    told.send(journal.count)
    while group := list(islice(missing, chance.randint(1, plan.group_max))):
        journal.append(group)
        journal.flush()
        told.send(journal.count)


@frozen(kw_only=True)
class RecorderPlan:
    """What to write into a recorder: numbered records."""

    root: Path
    file_bytes: int
    first: int


def write_recorder(plan: RecorderPlan, told: Connection) -> None:
    """Record one number after the other, and tell each that is durable."""
    fdr = FileFdrClient(root=plan.root, clock=ManualClock(), file_bytes_max=plan.file_bytes)
    for number in count(plan.first):
        fdr.record("c11.upload.giveup", {"number": number, "text": "x" * 1_000}, durable=True)
        told.send(number)
