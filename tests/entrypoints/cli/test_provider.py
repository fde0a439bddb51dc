"""``tileferry provider``, run as people run it."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import trustme
from support import contracts
from support.operator import CommandResult, run_in_process
from support.provider import API_KEY, serve_provider, start_provider_process
from typer.testing import CliRunner

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.provider import app

TILES = "/api/satellite/tiles"
TILE = f"{TILES}/15/19679/11098"
AREA = {"bbox": "36.10,49.95,36.20,50.02", "zoom": "14", "list-only": "true"}
BEARER = {"Authorization": f"Bearer {API_KEY}"}


def run_provider(*arguments: str) -> CommandResult:
    """Run a command that is expected to end by itself, where nothing is set."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if "TILEFERRY" in name]:
            patch.delenv(name)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "200")
        ran = run_in_process("provider", *arguments)
    assert "Traceback" not in ran.err, ran.err
    return ran


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_provider_serves_and_stops_on_signal(how: signal.Signals) -> None:
    with start_provider_process("--fault", "stall=1") as provider:
        announced = contracts.parse_output(provider.out)
        assert announced["schema"] == "tileferry.provider.serve.v1"
        assert announced["pid"] == provider.process.pid
        assert announced["url"].startswith("http://127.0.0.1:")
        assert announced["xyz_url_template"] == f"{announced['url']}/xyz/{{z}}/{{x}}/{{y}}.jpg"
        with (
            httpx.Client(headers=BEARER, trust_env=False) as client,
            client.stream("GET", provider.url + TILE) as response,
        ):
            assert next(response.iter_raw())  # and now it stalls
            started_s = time.monotonic()
            assert provider.stop(how) == 0
        assert time.monotonic() - started_s < 5
        assert len(provider.out.splitlines()) == 1
        assert provider.err == ""


def test_address_is_printed_without_json() -> None:
    command = (sys.executable, "-m", "tileferry.entrypoints.cli", "provider", "serve", "--demo")
    process = subprocess.Popen(  # noqa: S603  # our own command
        (*command, "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        headers = {"Authorization": "Bearer demo"}
        response = httpx.get(url + TILES, params=AREA, headers=headers, trust_env=False)
        assert response.status_code == 200
    finally:
        process.terminate()
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert "Ctrl-C" in err


def test_two_processes_serve_same_bytes() -> None:
    contents = []
    for _ in range(2):
        with start_provider_process() as provider:
            response = httpx.get(provider.url + TILE, headers=BEARER, trust_env=False)
            contents.append(response.content)
    assert contents[0] == contents[1]


def test_record_file_lists_requests_without_key(tmp_path: Path) -> None:
    file, script = tmp_path / "record.jsonl", tmp_path / "script.json"
    script.write_text(json.dumps([{"tile": "15/19679/11098", "fault": "503", "times": 1}]))
    with start_provider_process("--record", file, "--faults-file", script) as provider:
        with httpx.Client(headers=BEARER, trust_env=False) as client:
            for _ in range(2):
                client.get(provider.url + TILE)
            client.get(provider.url + TILE, headers={"Authorization": "Bearer wrong-canary"})
        written = [json.loads(line) for line in file.read_text().splitlines()]
        told = [(line["attempt"], line["status"], line["fault"]) for line in written]
        assert told == [(1, 503, "503"), (2, 200, None), (3, 403, None)]
        shown = provider.read_lines("record")
        assert [{"kind": "request", **line} for line in shown] == written
        provider.stop()
        everything = file.read_text() + provider.out + provider.err + str(shown)
    assert API_KEY not in everything
    assert "wrong-canary" not in everything


def test_provider_serves_tls_with_own_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with serve_provider({"fault": "reset", "times": 1}, tls=(cert, key)) as provider:
        assert provider.url.startswith("https://127.0.0.1:")
        with provider.client(verify=trusting) as client:
            with pytest.raises(httpx.TransportError):
                client.get(TILE)
            assert client.get(TILE).status_code == 200
        with provider.client() as stranger, pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
            stranger.get(TILE)


def test_key_is_read_from_private_file_only(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("key-of-a-file\n")
    file.chmod(0o600)
    with start_provider_process("--api-key-file", file) as provider:
        for key, status in (("key-of-a-file", 200), (API_KEY, 403)):
            headers = {"Authorization": f"Bearer {key}"}
            response = httpx.get(provider.url + TILE, headers=headers, trust_env=False)
            assert response.status_code == status
    file.chmod(0o640)
    refused = run_provider("serve", "--api-key-file", str(file))
    assert refused.code == 2
    assert "can be read by other users (mode 640)" in refused.err
    assert "chmod 600" in refused.err
    assert "key-of-a-file" not in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "0"], "TILEFERRY_PROVIDER_API_KEY: is not set"),
        (["--demo", "--host", "0.0.0.0"], "must be set when others can reach"),  # noqa: S104  # refused
        (["--demo", "--fault", "teapot=1"], "use one of 429, 429-date"),
        (["--demo", "--resolution", "fine"], "--resolution: is neither"),
        (["--demo", "--resolution", "-1"], "resolution_m_per_px: must be a finite number above 0"),
        (
            ["--demo", "--produced-at", "soon"],
            "--produced-at: must be an ISO 8601 time with a time zone",
        ),
        (["--demo", "--produced-at", "2026-10-01T12:00:00"], "--produced-at: must be an ISO 8601"),
        (["--demo", "--page-size", "0"], "page_size: must be a whole number"),
        (["--demo", "--port", "70000"], "port: must be a whole number"),
        (["--demo", "--tls-cert", "a.pem"], "--tls-cert, --tls-key: must be given together"),
        (["--demo", "--tls-cert", "a.pem", "--tls-key", "b.pem"], "--tls-cert, --tls-key: cannot"),
        (["--demo", "--api-key-file", "none"], "--api-key-file: cannot be read"),
        (["--demo", "--record", "/nowhere/record"], "--record: cannot be written"),
    ],
    ids=str,
)
def test_invalid_option_is_rejected_by_name(arguments: list[str], said: str) -> None:
    nothing_set = {"TILEFERRY_PROVIDER_API_KEY": None}
    refused = CliRunner().invoke(app, ["serve", *arguments], env=nothing_set)
    assert isinstance(refused.exception, InvalidValueError)
    assert said in str(refused.exception)
    assert refused.stdout == ""


def test_port_in_use_is_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run_provider("serve", "--demo", "--port", str(taken.getsockname()[1]))
    assert refused.code == 2
    assert "cannot listen" in refused.err
    assert "choose another port" in refused.err


def test_missing_web_extra_names_package_to_install() -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; "
        "sys.argv = ['tileferry', 'provider', 'serve', '--demo']; "
        "from tileferry.entrypoints.cli.main import main; main()"
    )
    done = subprocess.run(  # noqa: S603  # as written above
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "pip install 'tileferry[web]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_faults_can_be_listed() -> None:
    listed = run_provider("faults", "--json").json
    names = [fault["name"] for fault in listed["faults"]]
    assert {"429", "503", "reset", "poison", "endless"} <= set(names)
    table = run_provider("faults").out
    assert all(name in table for name in names)


def test_produced_at_and_page_size_options_are_applied() -> None:
    with start_provider_process("--produced-at", "2026-09-01", "--page-size", "3") as provider:
        response = httpx.get(provider.url + TILES, params=AREA, headers=BEARER, trust_env=False)
    tiles = response.json()["tiles"]
    assert [tile["produced_at"] for tile in tiles] == ["2026-09-01T00:00:00Z"] * 3
