"""The story as a whole: an operator's day, with a provider that misbehaves and a laptop that dies.

Everything is real: the commands are those that an operator types, the provider is a process on this
machine, the database is an embedded Postgres, and the kill is a SIGKILL. All of it lives in a
temporary folder that is gone at the end.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rich.console import Console

from tileferry.entrypoints.config import CONFIG_FILE, ENV_PREFIX
from tileferry.entrypoints.demo.accounting import an_account
from tileferry.entrypoints.demo.clerk import clerk_at_work
from tileferry.entrypoints.demo.counting import Notebook
from tileferry.entrypoints.demo.delivering import a_flight, an_upload
from tileferry.entrypoints.demo.findings import Findings, gather
from tileferry.entrypoints.demo.preparing import a_download, a_new_laptop, a_plan, a_verdict
from tileferry.entrypoints.demo.reprocessing import a_partition
from tileferry.entrypoints.demo.scenery import Size, settings
from tileferry.entrypoints.demo.stage import Stage, misbehaving_provider


def play(size: Size, console: Console, out: IO[str]) -> Findings:
    """Play all chapters; words go to the console, the commands' data to ``out``."""
    notes = Notebook()
    with stage_set(console, out) as stage:
        a_new_laptop(stage)
        a_plan(stage, size)
        a_download(stage, size, notes)
        a_verdict(stage, size, notes)
        a_flight(stage)
        an_upload(stage)
        a_partition(stage)
        an_account(stage)
        return gather(stage, notes)


@contextmanager
def stage_set(console: Console, out: IO[str]) -> Iterator[Stage]:
    """Make a folder, a provider and a clerk, for as long as the story lasts."""
    with tempfile.TemporaryDirectory(prefix="tileferry-demo-") as folder:
        home = Path(folder).resolve()
        record, environment = home / "requests.jsonl", _environment()
        with (
            misbehaving_provider(home, record, environment) as url,
            clerk_at_work(home, environment) as clerk,
        ):
            (home / CONFIG_FILE).write_text(settings(home, url), encoding="utf-8")
            yield Stage(
                home=home,
                console=console,
                out=out,
                environment=environment,
                record=record,
                clerk=clerk,
            )


def _environment() -> Mapping[str, str]:
    """Return what commands find set: nothing of another installation of the shell's owner."""
    mine = {name: text for name, text in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return {**mine, f"{ENV_PREFIX}C11_SERVICE_API_KEY": "demo"}
