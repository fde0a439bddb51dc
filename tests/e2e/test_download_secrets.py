"""Invariants 34 and 36: no key and no control character in anything that a download writes."""

import itertools
import json
import os
import pty
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from support.download_env import DERKACHI, ZOOM
from support.download_operator import (
    AREA,
    DOWNLOAD,
    FLIGHT,
    DownloadOperator,
    collect_traces,
    wait_until,
)
from support.hostile_provider import respond_with, run_raw_server
from support.key_echo import ENCODINGS, find_key
from support.scripted_provider import KEY, TILES, Answer, ScriptedProvider, tile_path

from tileferry.adapters.http import HttpTileProvider

EVIL = "\x1b[2J\x07\u202egpj.exe\nINFO all is well\r\x9b31m"
"""Clears a terminal, rings, turns the text around, and looks like another line of a log."""


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.for_area(DERKACHI, ZOOM, 10)


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, provider: ScriptedProvider
) -> Iterator[DownloadOperator]:
    with provider.serve() as url:
        settings = {"TILEFERRY_C11_MAX_5XX_RETRIES": "1", "TILEFERRY_C11_HTTP_TIMEOUT_S": "1"}
        settings["TILEFERRY_C11_BACKOFF_BASE_S"] = "0.02"
        settings["TILEFERRY_AUDIT_SINKS"] = "postgres:jsonl:log"
        settings["TILEFERRY_AUDIT_JSONL_PATH"] = str(tmp_path / "audit.jsonl")
        yield DownloadOperator(tmp_path, database_url, url, settings)


def echo_key(status: int, **headers: str) -> Answer:
    """Answer with the key that came, each time in other forms, and wherever else it is put."""
    forms = itertools.cycle(ENCODINGS.values())

    def answer(request: httpx.Request) -> httpx.Response:
        told = request.headers["authorization"]
        key = told.partition(" ")[2]
        shown = " ".join(encode(key) for encode in itertools.islice(forms, 7))
        return httpx.Response(
            status,
            text=f"{told} {key} {shown} is not welcome",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    return answer


def answer_listing(body: str) -> Answer:
    return lambda _request: httpx.Response(
        200, content=body.encode(), headers={"content-type": "application/json"}
    )


def answer_image(**headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(
        200, content=b"x", headers={"content-type": "image/png", **named}
    )


FAILURES: dict[str, tuple[str, Answer, int]] = {
    "401": ("tile", echo_key(401), 6),
    "403 of the listing": ("listing", echo_key(403), 6),
    "redirect": ("tile", echo_key(302, location=f"https://elsewhere.example/{KEY}"), 5),
    "404": ("tile", echo_key(404), 3),
    "429": ("tile", echo_key(429, retry_after="0"), 5),
    "503": ("tile", echo_key(503), 5),
    "503 of the listing": ("listing", echo_key(503), 5),
    "418": ("tile", echo_key(418), 5),
    "garbage": ("listing", answer_listing(f"Bearer {KEY}"), 5),
    "a key twice": ("listing", answer_listing(f'{{"{KEY}": 1, "{KEY}": 2}}'), 5),
    "a field of that name": ("listing", answer_listing(f'{{"{KEY}": NaN}}'), 5),
    "a value": ("listing", answer_listing(json.dumps({"tiles": [{"z": KEY}]})), 5),
    "a cursor": ("listing", answer_listing(json.dumps({"tiles": [], "next": KEY})), 5),
    "content type": ("tile", answer_image(content_type=KEY), 3),
    "content encoding": ("tile", answer_image(content_encoding=KEY), 3),
    "resolution": ("tile", answer_image(x_resolution_m_per_px=KEY), 3),
    "date": ("tile", answer_image(x_produced_at=KEY), 3),
    "digest": ("tile", answer_image(repr_digest=f"sha-256=:{KEY}:"), 3),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_invariant_34_key_is_absent_from_output_and_logs_after_failure(
    operator: DownloadOperator, provider: ScriptedProvider, failure: str
) -> None:
    where, answer, code = FAILURES[failure]
    provider.always[TILES if where == "listing" else tile_path(provider.tiles[0])] = answer
    ran = operator.run_in_process(*DOWNLOAD, "--once", "--json")
    assert ran.code == code
    found = collect_traces(operator, ran)
    assert "c11.download.session.end" in found  # the log is part of what is searched
    assert find_key(found, KEY) is None


def test_invariant_34_key_is_absent_after_tls_network_or_database_failure(
    operator: DownloadOperator, database_url: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    ran = []
    with run_raw_server(respond_with("HTTP/1.1 200 OK"), tls=context) as server:
        operator.provider_url = server.url
        ran.append(operator.run_in_process(*DOWNLOAD, "--once", "--json"))
    operator.provider_url = "http://127.0.0.1:1"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once", "--json"))
    operator.database_url = "postgresql://nobody@127.0.0.1:1/none"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once", "--json"))
    operator.database_url = database_url
    operator.settings["TILEFERRY_C11_SATELLITE_PROVIDER_URL"] = f"https://x:{KEY}@host"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once"))
    operator.settings["TILEFERRY_C11_SATELLITE_PROVIDER_URL"] = "https://host.example"
    operator.settings["TILEFERRY_C11_SERVICE_API_KEY"] = f"{KEY}\n{KEY}"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once"))
    assert [each.code for each in ran] == [6, 5, 7, 2, 2]
    assert KEY not in collect_traces(operator, *ran)


@pytest.mark.parametrize("where", ["fetch_listing_page", "build_target", "read_tile"])
def test_invariant_34_key_is_absent_from_crash_traceback(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def defective(provider: HttpTileProvider, *_args: object, **_named: object) -> None:
        raise RuntimeError(dict(provider.client.headers))

    monkeypatch.setattr(HttpTileProvider, where, defective)
    ran = operator.run_in_process(*DOWNLOAD, "--once", "--json")
    assert ran.code == 7
    assert "Traceback" in ran.err
    assert ran.json["error"]["type"] == "RuntimeError"
    (crash,) = [each for each in operator.read_log() if each["kind"] == "cli.crashed"]
    assert any("Bearer ***" in line for line in crash["traceback"])
    assert KEY not in collect_traces(operator, ran)


def test_invariant_34_key_is_absent_from_process_arguments(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = lambda _request: httpx.Response(
        429, headers={"retry-after": "30"}, text=KEY
    )
    with operator.start(*DOWNLOAD, as_new_program=True) as command:
        wait_until(lambda: bool(provider.requests), "a request")
        arguments = Path(f"/proc/{command.process.pid}/cmdline").read_bytes()
    assert b"download" in arguments
    assert KEY.encode() not in arguments


# Invariant 36


def is_printable(content: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in content)


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("tile", lambda _request: httpx.Response(503, text=EVIL)),
        ("listing", lambda _request: httpx.Response(403, text=EVIL)),
        ("listing", answer_listing(json.dumps({"tiles": [], "next": 1, EVIL: "\0"}))),
        ("listing", answer_listing(f'{{"x": 1, {json.dumps(EVIL)}: NaN}}')),
        ("listing", answer_listing(f"{{{json.dumps(EVIL)}: 1, {json.dumps(EVIL)}: 2}}")),
        ("listing", answer_listing(EVIL)),
        ("tile", answer_image(content_type="\x1b[2J\x9b31m")),
    ],
)
def test_invariant_36_provider_text_is_escaped(
    operator: DownloadOperator, provider: ScriptedProvider, where: str, answer: Answer
) -> None:
    provider.always[TILES if where == "listing" else tile_path(provider.tiles[0])] = answer
    ran = [
        operator.run_in_process(*command)
        for command in ((*DOWNLOAD, "--once"), (*DOWNLOAD, "--once", "--json"), ("coverage", *AREA))
    ]
    assert ran[0].code in {3, 5, 6}
    for each in ran:
        assert is_printable(each.out)
        assert is_printable(each.err)
    logged = operator.log_file.read_text("utf-8")
    assert is_printable(logged)
    for line in logged.splitlines():
        assert [*json.loads(line)][:3] == ["timestamp", "level", "logger"]


def run_on_terminal(operator: DownloadOperator, *arguments: str) -> str:
    """Run a command on a terminal of its own, and return all that was drawn there."""
    command = operator.command(*arguments)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(operator.home)
        os.execve(command[0], command, {**operator.environment, "TERM": "xterm"})  # noqa: S606  # our own command
    drawn = b""
    try:
        while chunk := read_terminal(terminal):
            drawn += chunk
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return drawn.decode("utf-8", "replace")


def read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""


def test_invariant_36_provider_text_is_escaped_on_terminal(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    operator.settings["TILEFERRY_C11_MAX_5XX_RETRIES"] = "2"
    operator.settings["TILEFERRY_C11_BACKOFF_BASE_S"] = "1"
    operator.settings["COLUMNS"] = "100"
    path = tile_path(provider.tiles[0])
    unwell: Callable[[httpx.Request], httpx.Response] = lambda _request: httpx.Response(  # noqa: E731  # used twice
        503, text=EVIL
    )
    provider.once[path] = [unwell, unwell]
    provider.lines[provider.tiles[1]] = {"resolution_m_per_px": 0.3}
    drawn = run_on_terminal(operator, *DOWNLOAD)
    assert "503, attempt 2 of 3 (backoff), again in 2 s" in drawn
    assert "9 of 10 tiles" in drawn
    assert "warning: tile satellite/14/" in drawn
    assert "Download for flight F1" in drawn
    for part in ("\x1b[2J", "\x07", "\u202e", "\x9b", "\nINFO all is well"):
        assert part not in drawn


def test_progress_bar_shows_rate_limit_wait(
    operator: DownloadOperator, provider: ScriptedProvider
) -> None:
    operator.settings["COLUMNS"] = "100"
    provider.once[TILES] = [
        lambda _request: httpx.Response(429, headers={"retry-after": "3"}, text="later")
    ]
    drawn = run_on_terminal(operator, *DOWNLOAD, *())
    assert "listing: 0 tiles so far" in drawn
    assert "rate limited (Retry-After); waiting 2 s" in drawn
    assert FLIGHT[1] in drawn
