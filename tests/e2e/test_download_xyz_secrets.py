"""Invariant 34 where the key is part of every address: it is in nothing that a download leaves."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from support.download_env import DERKACHI
from support.download_operator import XyzOperator, collect_traces
from support.hostile_provider import respond_with, run_raw_server
from support.pictures import make_picture
from support.scripted_provider import KEY, Answer, ScriptedProvider

from tileferry.adapters.http import XyzTileProvider

AREA = ("--bbox", str(DERKACHI), "--zoom", "10")
DOWNLOAD = ("download", *AREA, "--flight", "F1", "--sector", "active_conflict")
PICTURE = make_picture("a picture" * 9)
PLACES = ("/xyz/{z}/{x}/{y}.png?key={api_key}", "/{api_key}/{z}/{x}/{y}.png")


class KeyedServer(ScriptedProvider):
    """Answers every address alike, once the key is in it."""

    answer: Answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if KEY not in str(request.url):
            return httpx.Response(403)
        return self.answer(request)


def answer_picture(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=PICTURE, headers={"content-type": "image/png"})


def echo_address(status: int, **headers: str) -> Answer:
    """Answer with the address that was asked for, in the body and wherever else it is put."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: httpx.Response(
        status, text=f"{request.url} {KEY} is not welcome", headers=named
    )


@pytest.fixture
def server() -> KeyedServer:
    found = KeyedServer([])
    found.answer = answer_picture
    return found


@pytest.fixture
def operator(tmp_path: Path, database_url: str, server: KeyedServer) -> Iterator[XyzOperator]:
    with server.serve() as url:
        settings = {
            "TILEFERRY_C11_MAX_5XX_RETRIES": "1",
            "TILEFERRY_C11_HTTP_TIMEOUT_S": "1",
            "TILEFERRY_AUDIT_SINKS": "postgres:jsonl:log",
            "TILEFERRY_AUDIT_JSONL_PATH": str(tmp_path / "audit.jsonl"),
            "TILEFERRY_LOG_LEVEL": "DEBUG",
            "TILEFERRY_XYZ_URL_TEMPLATE": f"{url}{PLACES[0]}",
        }
        yield XyzOperator(tmp_path, database_url, url, settings)


def set_server(operator: XyzOperator, url: str, place: str = PLACES[0]) -> None:
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"{url}{place}"
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = url.rpartition("/")[2]


FAILURES: dict[str, tuple[Answer, int]] = {
    "none": (answer_picture, 0),
    "401": (echo_address(401), 6),
    "404": (echo_address(404), 3),
    "429": (echo_address(429, retry_after="0"), 5),
    "503": (echo_address(503), 5),
    "418": (echo_address(418), 5),
    "redirect": (echo_address(302, location=f"https://elsewhere.example/{KEY}"), 5),
    "content type": (echo_address(200, content_type=KEY), 5),
    "no picture": (echo_address(200, content_type="image/png"), 5),
    "digest": (echo_address(200, content_type="image/png", repr_digest=f"sha-256=:{KEY}:"), 5),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("failure", FAILURES)
def test_invariant_34_key_in_url_is_absent_from_output_and_logs(
    operator: XyzOperator, server: KeyedServer, failure: str, place: str
) -> None:
    server.answer, code = FAILURES[failure]
    set_server(operator, operator.provider_url, place)
    ran = operator.run_in_process(*DOWNLOAD, "--once", "--json")
    assert ran.code == code, ran.err
    assert server.requests
    found = collect_traces(operator, ran)
    assert "c11.download.session.end" in found  # the log is part of what is searched
    assert KEY not in found


def test_invariant_34_key_in_url_is_absent_after_tls_or_network_failure(
    operator: XyzOperator,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    ran = []
    with run_raw_server(respond_with("HTTP/1.1 200 OK"), tls=context) as server:
        set_server(operator, server.url)
        ran.append(operator.run_in_process(*DOWNLOAD, "--once", "--json"))
    set_server(operator, "http://127.0.0.1:1")
    ran.append(operator.run_in_process(*DOWNLOAD, "--once", "--json"))
    ran.append(operator.run_in_process("plan", *DOWNLOAD[1:]))
    ran.append(operator.run_in_process("coverage", *AREA))
    operator.settings["TILEFERRY_C11_SERVICE_API_KEY"] = f"{KEY}/{KEY}"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once"))
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"https://h/{{z}}/{{x}}/{{y}}?key={KEY}"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once"))
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"https://x:{KEY}@h/{{z}}/{{x}}/{{y}}"
    ran.append(operator.run_in_process(*DOWNLOAD, "--once"))
    assert [each.code for each in ran] == [6, 5, 0, 0, 5, 2, 2]
    assert KEY not in collect_traces(operator, *ran)


@pytest.mark.parametrize("where", ["build_target", "read_tile"])
def test_invariant_34_key_in_url_is_absent_from_crash_traceback(
    operator: XyzOperator, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def defective(provider: XyzTileProvider, *_args: object, **_named: object) -> None:
        raise RuntimeError(repr(provider))

    monkeypatch.setattr(XyzTileProvider, where, defective)
    ran = operator.run_in_process(*DOWNLOAD, "--once", "--json")
    assert ran.code == 7
    assert "Traceback" in ran.err
    assert KEY not in collect_traces(operator, ran)
