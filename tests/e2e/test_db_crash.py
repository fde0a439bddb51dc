"""A command that is killed while it creates or starts the embedded server: the next one works.

Half of the kills take only the command, and leave the programs that it has started; the others take
these too, as a power loss or a container's end does.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from support.crash_processes import SOAK_FACTOR, processes
from support.embedded_user import visit_server
from support.postgres_server import copy_server_data

from tileferry.adapters.postgres import EmbeddedServer, ServerState

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

KILLS = 4 if SOAK_FACTOR == 1 else 125
RECOVERY_S_MAX = 60
"""How long the next command may take, on a busy machine."""


def visit(data_dir: Path, results: "SimpleQueue[int]") -> None:
    """Use the server, in a process that ends in an orderly way."""
    results.put(visit_server(data_dir)[1])
    EmbeddedServer(data_dir).leave()  # as at the end of any other process


def find_processes_in(folder: Path) -> list[int]:
    """Return the processes that work below a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return found


def kill_processes_in(folder: Path) -> None:
    for pid in find_processes_in(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class ServerCampaign:
    """Commands on one data directory, most of which are killed, and a process that is not ours."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.data_dir = data_dir
        self.chance = random.Random(seed)  # noqa: S311  # a repeatable test, not a secret
        self.visits = 0
        self.kills = 0

    def kill_one(self, moment_s_max: float) -> None:
        """Start a command, and kill it at a random moment, with or without its programs."""
        results = processes.SimpleQueue()
        command = processes.Process(target=visit, args=(self.data_dir, results))
        command.start()
        time.sleep(self.chance.uniform(0, moment_s_max))
        self.kills += command.is_alive()
        command.kill()
        command.join()
        if self.chance.random() < 0.5:
            kill_processes_in(self.data_dir)
        if not results.empty():
            self.visits = results.get()
        results.close()

    def recover(self) -> None:
        """Check that the next command works without help, and finds everything committed."""
        results = processes.SimpleQueue()
        command = processes.Process(target=visit, args=(self.data_dir, results))
        command.start()
        command.join(RECOVERY_S_MAX)
        assert command.exitcode == 0, "the next command is stuck, or failed"
        visits = results.get()
        results.close()
        assert self.visits < visits <= self.visits + 2, "the killed one may have committed"
        self.visits = visits
        assert EmbeddedServer(self.data_dir).find_status().state is ServerState.STOPPED
        assert not list(self.data_dir.glob("creating-*"))
        assert not find_processes_in(self.data_dir)


@pytest.fixture
def campaign(servers_root: Path) -> Iterator[ServerCampaign]:
    folder = servers_root / f"kills-{uuid4().hex[:12]}"
    seed = random.randrange(1_000_000)  # noqa: S311  # as above
    print("seed", seed)  # noqa: T201  # shown when the test fails
    yield ServerCampaign(folder / "pg", seed)
    kill_processes_in(folder)
    shutil.rmtree(folder)


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process whose id a stale file names."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        yield process
        assert process.poll() is None, "it was harmed"
        process.communicate()
        assert process.returncode == 0


@pytest.mark.timeout(1_800)
def test_invariant_41_kill_during_creation_leaves_a_usable_installation(
    campaign: ServerCampaign,
) -> None:
    while campaign.kills < KILLS:
        campaign.kill_one(1.5)
        campaign.recover()
        shutil.rmtree(campaign.data_dir)
        campaign.visits = 0


@pytest.mark.timeout(1_800)
def test_invariant_41_kill_during_start_leaves_a_usable_installation(
    campaign: ServerCampaign, bystander: "subprocess.Popen[bytes]", initialized_data_dir: Path
) -> None:
    copy_server_data(initialized_data_dir, campaign.data_dir)
    while campaign.kills < KILLS:
        campaign.kill_one(0.4)
        if campaign.chance.random() < 0.3 and not find_processes_in(campaign.data_dir):
            (campaign.data_dir / "pgdata" / "postmaster.pid").write_text(f"{bystander.pid}\n")
        campaign.recover()
