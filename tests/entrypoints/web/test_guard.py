"""Attacks on the console: nothing happens that should not (invariant 37)."""

import re
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from support.things_page import APPLIED, send
from support.web_site import STORED, RunningSite, find_csrf_token

from tileferry.domain.addresses import is_loopback
from tileferry.entrypoints.config import ServeConfig
from tileferry.entrypoints.web import pages, server
from tileferry.entrypoints.web.guard import BODY_BYTES_MAX

# requests of other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_invariant_37_changes_of_other_sites_are_refused(
    console: RunningSite, headers: dict[str, str]
) -> None:
    with console.client() as client:
        token = find_csrf_token(client.get("/things").text)
        client.headers.update(headers)
        refused = send(client, token=token)
        assert (refused.status_code, APPLIED) == (403, [])


def test_invariant_37_change_without_origin_is_refused(console: RunningSite) -> None:
    with console.client() as client:
        token = find_csrf_token(client.get("/things").text)
        del client.headers["origin"]
        assert send(client, token=token).status_code == 403


def test_invariant_37_change_needs_the_token_of_its_own_session(console: RunningSite) -> None:
    with console.client() as one, console.client() as other:
        token = find_csrf_token(one.get("/things").text)
        other.get("/things")
        assert send(other, token=token).status_code == 403
        assert send(other, token="").status_code == 403
        assert send(one, token=token).status_code == 200
        one.cookies.clear()
        assert send(one, token=token).status_code == 403


def test_invariant_37_get_changes_nothing(console: RunningSite) -> None:
    with console.client() as client:
        page = client.get("/things").text
        for path in ("/things/change", "/things/change/apply"):
            token = find_csrf_token(page)
            answer = client.get(path, params={"csrf_token": token, "reason": "x", "name": "a"})
            assert answer.status_code == 404
        for method in ("PUT", "DELETE", "PATCH", "TRACE"):
            assert client.request(method, "/things").status_code == 405
        assert APPLIED == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.1.2.3", ""])
def test_invariant_37_rebound_names_are_refused(console: RunningSite, host: str) -> None:
    with console.client() as client:
        for path in (
            "/map",
            "/health",
            f"/tiles/{STORED}",
            "/static/x/console.css",
            "/live/health",
        ):
            answer = client.get(path, headers={"host": host})
            assert answer.status_code == 421, path
            assert "set-cookie" not in answer.headers


def test_invariant_37_every_answer_has_a_strict_policy(console: RunningSite) -> None:
    with console.client() as client:
        for path in ("/map", "/nothing", "/tiles/sat/1/0/0", "/wmts", "/static/x", "/map/overlay"):
            answer = client.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            for weak in ("unsafe", "blob:", "data:", "*", "http"):
                assert weak not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"


def test_invariant_37_text_of_requests_is_escaped(console: RunningSite) -> None:
    attack = "<script>alert(1)</script>"
    with console.client() as client:
        assert attack not in client.get(f"/{attack}").text
        assert attack not in client.get("/map/overlay", params={"flight": attack}).text
        shown = send(client, name=attack)
        assert attack not in shown.text
        assert "&lt;script&gt;" in shown.text


def test_cookie_is_hidden_from_scripts_and_other_sites(console: RunningSite) -> None:
    with console.client() as client:
        cookie = client.get("/map").headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "set-cookie" not in client.get("/map").headers
        assert "set-cookie" not in client.get("/static/x/console.css").headers


# sizes, rates and time


def test_changes_are_limited(console: RunningSite) -> None:
    with console.client() as client:
        token = find_csrf_token(client.get("/things").text)
        codes = [send(client, token=token).status_code for _ in range(70)]
        assert codes[:60] == [200] * 60
        assert 429 in codes[60:]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"a=" + b"x" * (BODY_BYTES_MAX + 1), 413),
        ({"content-type": "application/json"}, b"{}", 415),
        ({"content-type": "text/plain"}, b"a=b", 415),
        ({}, b"a=%ff", 400),
        ({}, b"\xff", 400),
        ({}, b"&".join(b"a=b" for _ in range(6_000)), 400),
    ],
)
def test_invalid_forms_are_refused(
    console: RunningSite, headers: dict[str, str], body: bytes, status: int
) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    with console.client() as client:
        client.get("/things")
        answer = client.post("/things/change", content=body, headers={**kind, **headers})
        assert answer.status_code == status


def test_body_of_unknown_length_is_limited(console: RunningSite) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    with console.client() as client:
        chunks = (b"x" * 65_536 for _ in range(20))
        answer = client.post("/things/change", content=chunks, headers=kind)
        assert answer.status_code == 413


def connect(site: RunningSite) -> socket.socket:
    host, port = site.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def test_endless_head_is_cut_off(console: RunningSite) -> None:
    with connect(console) as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        with suppress(OSError):
            for number in range(100):
                link.sendall(b"x-%d: " % number + b"y" * 1_000 + b"\r\n")
        answer = b""
        with suppress(ConnectionResetError):  # what was sent too much is not read
            answer = link.recv(4_096)
        assert answer.startswith(b"HTTP/1.1 431 ") or not answer


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na"]
)
def test_slow_request_is_cut_off(
    console: RunningSite, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.3)
    with connect(console) as link:
        link.sendall(sent)
        answer = b""
        while chunk := link.recv(4_096):
            answer += chunk
        assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 403 "))


def test_many_idle_connections_do_not_stop_the_others(console: RunningSite) -> None:
    idle = [connect(console) for _ in range(100)]
    try:
        with console.client() as client:
            assert client.get("/things").status_code == 200
    finally:
        for link in idle:
            link.close()


def test_over_long_queries_are_refused(console: RunningSite) -> None:
    with console.client() as client:
        assert client.get("/map?" + "x" * 9_000).status_code == 414


# defaults and templates


def test_invariant_37_listens_on_loopback_by_default(console: RunningSite) -> None:
    assert is_loopback(ServeConfig().host)
    assert console.url.startswith("http://127.0.0.1:")


TEMPLATES = sorted((Path(pages.__file__).parent / "templates").glob("*"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_invariant_37_stored_text_is_escaped(console: RunningSite, template: Path) -> None:
    """No template can switch escaping off, so text of providers is escaped wherever it is shown."""
    environment = console.server.site.templates
    assert environment.autoescape is True
    text = template.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b|autoescape|<script>|\bon\w+=|\sstyle=|javascript:", text)
    attack = "<img src=x onerror=alert(1)>"
    shown = environment.from_string("{{ attack }}").render(attack=attack)
    assert attack not in shown
