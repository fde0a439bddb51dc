"""How the demo shows what it runs, and that nothing outlives it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from support.download_operator import wait_until

from tileferry.entrypoints.config.setting_names import PROVIDER_KEY_VARIABLE
from tileferry.entrypoints.demo.session import fold_command


def test_long_command_is_folded_with_shell_continuation() -> None:
    assert fold_command("$ tileferry db upgrade") == "$ tileferry db upgrade"
    long = "$ tileferry backfill plan " + " ".join(f"--option-{n} value-{n}" for n in range(9))
    shown = fold_command(long)
    assert max(map(len, shown.splitlines())) <= 98
    assert len(shown.splitlines()) == 3
    joined = shown.replace("\\\n", "")  # as a shell does
    assert shlex.split(joined) == shlex.split(long)


def test_provider_ends_with_killed_demo_and_ignores_shell_api_key(
    tmp_path: Path,
) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import httpx\n"
        "from tileferry.entrypoints.demo.story import _build_environment\n"
        "from tileferry.entrypoints.demo.session import run_faulty_provider\n"
        "home, mine = Path(sys.argv[1]), _build_environment()\n"
        "key = {'Authorization': 'Bearer ' + mine['TILEFERRY_C11_SERVICE_API_KEY']}\n"
        "with run_faulty_provider(home, home / 'requests.jsonl', mine) as url:\n"
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
    wait_until(lambda: not is_listening(address.hostname or "", address.port or 0), "the end")


def is_listening(host: str, port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((host, port)) == 0
