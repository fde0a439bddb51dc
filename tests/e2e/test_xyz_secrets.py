"""Invariant 34 where the key is part of every address: it is in nothing that a download leaves."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from support.download_site import DERKACHI
from support.raw_server import answering, raw_server
from support.scripted_provider import KEY, Answer, ScriptedProvider
from support.traces import everything
from support.xyz_operator import XyzOperator

from tileferry.adapters.http import XyzTileProvider

AREA = ("--bbox", str(DERKACHI), "--zoom", "10")
DOWNLOAD = ("download", *AREA, "--flight", "F1", "--sector", "active_conflict")
PICTURE = b"\x89PNG\r\n\x1a\n" + b"a picture" * 9
PLACES = ("/xyz/{z}/{x}/{y}.png?key={api_key}", "/{api_key}/{z}/{x}/{y}.png")


class Server(ScriptedProvider):
    """Answers every address alike, once the key is in it."""

    answer: Answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if KEY not in str(request.url):
            return httpx.Response(403)
        return self.answer(request)


def good(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=PICTURE, headers={"content-type": "image/png"})


def echo(status: int, **headers: str) -> Answer:
    """Answer with the address that was asked for, in the body and wherever else it is put."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: httpx.Response(
        status, text=f"{request.url} {KEY} is not welcome", headers=named
    )


@pytest.fixture
def server() -> Server:
    found = Server([])
    found.answer = good
    return found


@pytest.fixture
def operator(tmp_path: Path, database_url: str, server: Server) -> Iterator[XyzOperator]:
    with server.served() as url:
        settings = {
            "TILEFERRY_C11_MAX_5XX_RETRIES": "1",
            "TILEFERRY_C11_HTTP_TIMEOUT_S": "1",
            "TILEFERRY_AUDIT_SINKS": "postgres:jsonl:log",
            "TILEFERRY_AUDIT_JSONL_PATH": str(tmp_path / "audit.jsonl"),
            "TILEFERRY_LOG_LEVEL": "DEBUG",
            "TILEFERRY_XYZ_URL_TEMPLATE": f"{url}{PLACES[0]}",
        }
        yield XyzOperator(tmp_path, database_url, url, settings)


def placed(operator: XyzOperator, url: str, place: str = PLACES[0]) -> None:
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"{url}{place}"
    operator.settings["TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = url.rpartition("/")[2]


FAILURES: dict[str, tuple[Answer, int]] = {
    "none": (good, 0),
    "401": (echo(401), 6),
    "404": (echo(404), 3),
    "429": (echo(429, retry_after="0"), 5),
    "503": (echo(503), 5),
    "418": (echo(418), 5),
    "redirect": (echo(302, location=f"https://elsewhere.example/{KEY}"), 5),
    "content type": (echo(200, content_type=KEY), 5),
    "no picture": (echo(200, content_type="image/png"), 5),
    "digest": (echo(200, content_type="image/png", repr_digest=f"sha-256=:{KEY}:"), 5),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("failure", FAILURES)
def test_invariant_34_a_key_in_the_address_is_in_nothing_that_a_download_leaves(
    operator: XyzOperator, server: Server, failure: str, place: str
) -> None:
    server.answer, code = FAILURES[failure]
    placed(operator, operator.provider_url, place)
    ran = operator.runs_here(*DOWNLOAD, "--json")
    assert ran.code == code, ran.err
    assert server.requests
    found = everything(operator, ran)
    assert "c11.download.session.end" in found  # the log is part of what is searched
    assert KEY not in found


def test_invariant_34_nor_when_tls_or_the_network_fails(operator: XyzOperator) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    ran = []
    with raw_server(answering("HTTP/1.1 200 OK"), tls=context) as server:
        placed(operator, server.url)
        ran.append(operator.runs_here(*DOWNLOAD, "--json"))
    placed(operator, "http://127.0.0.1:1")
    ran.append(operator.runs_here(*DOWNLOAD, "--json"))
    ran.append(operator.runs_here("plan", *DOWNLOAD[1:]))
    ran.append(operator.runs_here("coverage", *AREA))
    operator.settings["TILEFERRY_C11_SERVICE_API_KEY"] = f"{KEY}/{KEY}"
    ran.append(operator.runs_here(*DOWNLOAD))
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"https://h/{{z}}/{{x}}/{{y}}?key={KEY}"
    ran.append(operator.runs_here(*DOWNLOAD))
    operator.settings["TILEFERRY_XYZ_URL_TEMPLATE"] = f"https://x:{KEY}@h/{{z}}/{{x}}/{{y}}"
    ran.append(operator.runs_here(*DOWNLOAD))
    assert [each.code for each in ran] == [6, 5, 0, 0, 2, 2, 2]
    assert KEY not in everything(operator, *ran)


def test_invariant_34_nor_when_a_defect_shows_the_provider(
    operator: XyzOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(provider: XyzTileProvider, *_args: object) -> None:
        raise RuntimeError(repr(provider))

    monkeypatch.setattr(XyzTileProvider, "fetch_tile", defective)
    ran = operator.runs_here(*DOWNLOAD, "--json")
    assert ran.code == 7
    assert "Traceback" in ran.err
    assert KEY not in everything(operator, ran)
