"""``tileferry serve``, as a process."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support import contracts
from support.operator import Operator


@pytest.fixture
def operator(database_url: str, tmp_path: Path) -> Operator:
    return Operator(tmp_path, database_url)


@pytest.fixture
def serving(operator: Operator) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(  # noqa: S603  # our own command
        [*operator.command, "serve", "--port", "0", "--json"],
        env=operator.environment(TILEFERRY_LOG_FILE=str(operator.home / "log.jsonl")),
        cwd=operator.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_serves_on_loopback_until_a_signal(
    serving: "subprocess.Popen[str]", how: signal.Signals
) -> None:
    assert serving.stdout is not None
    announced = contracts.parse_output(serving.stdout.readline())
    assert announced["url"].startswith("http://127.0.0.1:")
    assert announced["pid"] == serving.pid
    with httpx.Client(trust_env=False) as client:
        page = client.get(f"{announced['url']}/map")
        assert "The cache has no tiles yet" in page.text
        tile = client.get(announced["tiles_url_template"].format(z=0, x=0, y=0))
        assert tile.json()["reason"] == "never_requested"
    serving.send_signal(how)
    out, err = serving.communicate(timeout=20)
    assert (serving.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--host", "::"], 4, "it has no token and no TLS"),
        (["--host", "192.0.2.1", "--token-file", "token"], 4, "serve.tls_cert"),
        (["--token-file", "none"], 2, "serve.token_file"),
        (["--token-file", "short"], 2, "fewer than 16 characters"),
        (["--token-file", "open"], 2, "chmod 600"),
        (["--tls-cert", "cert.pem"], 2, "must be given together"),
        (["--tls-cert", "none.pem", "--tls-key", "none.pem"], 2, "cannot be used"),
        (["--port", "99999"], 2, "65535"),
        (["--host", "203.0.113.1.example"], 4, "no TLS"),
    ],
)  # fmt: skip
def test_unsafe_or_wrong_settings_are_refused(
    operator: Operator, options: list[str], code: int, text: str
) -> None:
    for name, mode, content in (
        ("token", 0o600, "t" * 32),
        ("short", 0o600, "t"),
        ("open", 0o644, "t" * 32),
    ):
        (operator.home / name).write_text(content)
        (operator.home / name).chmod(mode)
    done = operator.run_in_process("serve", *options)
    assert (done.code, text in done.err) == (code, True), done.err


def test_missing_schema_is_reported(empty_database_url: str, tmp_path: Path) -> None:
    done = Operator(tmp_path, empty_database_url).run_in_process("serve", "--port", "0")
    assert done.code == 7
    assert "tileferry db upgrade" in done.err
