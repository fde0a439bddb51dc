"""Commands that are cut short: by a signal, a full disk, or a reader who has seen enough."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from support.download_operator import wait_until
from support.operator import create_user_folders

COMMAND = [sys.executable, "-m", "tileferry.entrypoints.cli"]
_FOLLOWS = (  # it has read the log, and waits for the next entry
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'tileferry' AND state = 'idle' AND query LIKE '%audit_log%'"
)


@pytest.mark.parametrize("words", [["config", "show"], ["config", "show", "--json"], ["--help"]])
def test_closed_output_pipe_does_not_crash(words: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(  # noqa: S603  # our own command
        [*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (7, b"")


def test_output_to_full_disk_is_one_line_error(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603  # as above
            [*COMMAND, "policy", "show"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
            check=False,
        )
    assert done.returncode == 7
    (line,) = done.stderr.splitlines()
    assert line.startswith("tileferry: the disk is full")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_exits_with_130(
    number: signal.Signals, tmp_path: Path, database_url: str
) -> None:
    process = subprocess.Popen(  # noqa: S603  # as above
        [*COMMAND, "audit", "tail", "--follow"],
        env={
            **os.environ,
            **create_user_folders(tmp_path),
            "TILEFERRY_DATABASE_URL": database_url,
        },
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with psycopg.connect(database_url, autocommit=True) as watcher:
        wait_until(lambda: watcher.execute(_FOLLOWS).fetchone() == (1,), "the wait for entries")
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "tileferry: interrupted\n")
