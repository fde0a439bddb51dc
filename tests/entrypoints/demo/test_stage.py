"""How the demo shows what it runs, and that nothing outlives it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from support.area_operator import wait_until

from tileferry.entrypoints.config.names import PROVIDER_KEY_VARIABLE
from tileferry.entrypoints.demo.stage import folded


def test_a_long_command_is_broken_as_a_shell_takes_it() -> None:
    assert folded("$ tileferry db upgrade") == "$ tileferry db upgrade"
    long = "$ tileferry backfill plan " + " ".join(f"--option-{n} value-{n}" for n in range(9))
    shown = folded(long)
    assert max(map(len, shown.splitlines())) <= 98
    assert len(shown.splitlines()) == 3
    joined = shown.replace("\\\n", "")  # as a shell does
    assert shlex.split(joined) == shlex.split(long)


def test_a_provider_ends_with_a_demo_that_was_killed_and_has_no_key_of_the_shells_owner(
    tmp_path: Path,
) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import httpx\n"
        "from tileferry.entrypoints.demo.play import _environment\n"
        "from tileferry.entrypoints.demo.stage import misbehaving_provider\n"
        "home, mine = Path(sys.argv[1]), _environment()\n"
        "key = {'Authorization': 'Bearer ' + mine['TILEFERRY_C11_SERVICE_API_KEY']}\n"
        "with misbehaving_provider(home, home / 'requests.jsonl', mine) as url:\n"
        "    asked = httpx.get(f'{url}/api/satellite/tiles/1/0/0', headers=key)\n"
        "    print(url, asked.status_code, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, PROVIDER_KEY_VARIABLE: "of-another-provider"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    url, status = done.stdout.split()
    assert int(status) not in {401, 403}
    address = urlsplit(url)
    assert address.port is not None
    wait_until(lambda: not _answers(address.hostname or "", address.port or 0), "the end")


def _answers(host: str, port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((host, port)) == 0
