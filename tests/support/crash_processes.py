"""Processes that are killed at some moment of their work.

A new one starts in milliseconds, so that a random moment is one of its work: one server, which
has imported what takes long, forks them all. There is one such server in a process of tests, so
that what it imports stands here, for all of them.
"""

import multiprocessing
import os
import pkgutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import tileferry.adapters
import tileferry.application
import tileferry.domain
import tileferry.entrypoints.cli

Plan = TypeVar("Plan")
START_TIMEOUT_S = 60


def list_modules() -> list[str]:
    """Return every module of the product: its packages import their parts only when used."""
    return [
        module.name
        for package in (
            tileferry.domain,
            tileferry.application,
            tileferry.adapters,
            tileferry.entrypoints.cli,
        )
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]


processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "sqlalchemy.dialects.postgresql.psycopg",
        "tileferry.entrypoints.container",
        "support.forked_command",
        *list_modules(),
    ]
)


def _work_in_clean_environment(
    work: Callable[[Plan, Connection], None], plan: Plan, told: Connection
) -> None:
    """Do the work without the settings of the test that happened to start the fork server."""
    for name in [name for name in os.environ if name.startswith("TILEFERRY_")]:
        del os.environ[name]
    work(plan, told)


def run_process(
    work: Callable[[Plan, Connection], None],
    plan: Plan,
    *,
    kill_when: Callable[[], bool] | None = None,
    after_s: float = 0.0,
) -> tuple[int | None, Any]:
    """Run a process that says "begun", and at last its result: return exit code and result.

    With ``kill_when`` it is killed a little after that moment, and has no result, unless it was
    done before.
    """
    here, there = processes.Pipe(duplex=False)
    process = processes.Process(target=_work_in_clean_environment, args=(work, plan, there))
    process.start()
    there.close()
    with here:
        assert here.poll(START_TIMEOUT_S)
        assert here.recv() == "begun"
        if kill_when is not None:
            while process.is_alive() and not kill_when():
                time.sleep(0.001)
            time.sleep(after_s)
            process.kill()
        process.join()
        return process.exitcode, here.recv() if process.exitcode == 0 else None


def run_until_progress(
    work: Callable[[Plan, Connection], None], plan: Plan, *, times: int
) -> list[Any]:
    """Run a process that tells how far it got; kill it after so many times, and return them all."""
    here, there = processes.Pipe(duplex=False)
    process = processes.Process(target=_work_in_clean_environment, args=(work, plan, there))
    process.start()
    there.close()
    with here:
        told = [here.recv() for _ in range(times)]
        process.kill()
        with suppress(EOFError):
            while True:
                told.append(here.recv())
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return told


SOAK_FACTOR = 10 if os.environ.get("SOAK") else 1
