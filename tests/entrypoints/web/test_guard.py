"""Attacks on the console: nothing happens that should not (invariant 37)."""

import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trustme
from attrs import frozen
from starlette.responses import Response
from support.web_site import (
    OPERATOR_TOKEN,
    STORED,
    VIEWER_TOKEN,
    RunningSite,
    find_csrf_token,
    serve_site,
)

from tileferry.domain.addresses import is_loopback
from tileferry.entrypoints.config import ServeConfig
from tileferry.entrypoints.web import pages, server
from tileferry.entrypoints.web.changes import Change, Confirmation, Preview
from tileferry.entrypoints.web.guard import BODY_BYTES_MAX
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute

APPLIED: list[Confirmation] = []
SIZE = {"count": 3}


def preview(request: PageRequest) -> Preview:
    count = SIZE["count"]
    return Preview(
        title=f"Change {count} things",
        count=count,
        noun="thing",
        plan={"count": count, "name": request.form.get("name", "")},
        columns=["name"],
        rows=[[request.form.get("name", "")]],
    )


def apply(request: PageRequest, confirmation: Confirmation) -> str:
    APPLIED.append(confirmation)
    return f"Changed {request.form['name']}."


def show_form(request: PageRequest) -> Response:
    return request.render("preview.html", _build_view(request))


def _build_view(request: PageRequest) -> dict[str, object]:
    return {
        "title": "Things",
        "change": CHANGE,
        "preview": preview(request),
        "carried": {},
        "problem": "",
        "reason": "",
    }


CHANGE = Change(path="/things/change", back="/things", preview=preview, apply=apply)
THINGS = Page(
    title="Things", path="/things", routes=(PageRoute("/things", show_form), *CHANGE.routes)
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    APPLIED.clear()
    SIZE["count"] = 3


@pytest.fixture(scope="module", autouse=True)
def _offer_things() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "PAGES", (*pages.PAGES, THINGS))
        yield


@pytest.fixture(scope="module")
def console(shared_database_url: str, web_home: Path) -> Iterator[RunningSite]:
    """Run a site with a page that can change something."""
    with serve_site(web_home, shared_database_url) as running:
        yield running


@frozen
class Tokens:
    operator: Path
    viewer: Path


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    folder = tmp_path_factory.mktemp("tokens")
    files = Tokens(folder / "operator", folder / "viewer")
    for file, token in ((files.operator, OPERATOR_TOKEN), (files.viewer, VIEWER_TOKEN)):
        file.touch(mode=0o600)
        file.write_text(token)
    return files


@pytest.fixture(scope="module")
def locked(shared_database_url: str, web_home: Path, tokens: Tokens) -> Iterator[RunningSite]:
    """Run a site that needs a token."""
    serve = {"token_file": tokens.operator, "viewer_token_file": tokens.viewer}
    with serve_site(web_home, shared_database_url, serve) as running:
        yield running


@pytest.fixture(autouse=True)
def _reset_limits(request: pytest.FixtureRequest) -> None:
    for name in {"console", "locked"} & {*request.fixturenames}:
        guard = request.getfixturevalue(name).server.app.guard
        guard._changes._buckets.clear()
        guard._logins._buckets.clear()


def send(client: httpx.Client, *, token: str | None = None, **more: str) -> httpx.Response:
    """Send the change as our own form does."""
    if token is None:
        token = find_csrf_token(client.get("/things").text)
    return client.post("/things/change", data={"csrf_token": token, "name": "a", **more})


def confirm(client: httpx.Client, page: str, **more: str) -> httpx.Response:
    fields = {
        "csrf_token": find_csrf_token(page),
        "plan_hash": page.split('name="plan_hash" value="')[1].split('"', maxsplit=1)[0],
        "name": "a",
        "reason": "a test",
    }
    return client.post("/things/change/apply", data={**fields, **more})


# changes with a preview


def test_change_is_previewed_confirmed_and_applied_with_its_actor(console: RunningSite) -> None:
    with console.client() as client:
        shown = send(client)
        assert "Change 3 things" in shown.text
        assert APPLIED == []
        done = confirm(client, shown.text)
        assert (done.status_code, done.headers["location"]) == (303, "/things")
        assert [Confirmation(by="tester@host", reason="a test", confirmed=None)] == APPLIED
        assert "Changed a." in client.get("/things").text
        assert "Changed a." not in client.get("/things").text


def test_change_whose_effect_drifted_is_shown_again(console: RunningSite) -> None:
    with console.client() as client:
        shown = send(client)
        SIZE["count"] = 4
        again = confirm(client, shown.text)
        assert again.status_code == 409
        assert "Change 4 things" in again.text
        assert APPLIED == []
        assert confirm(client, again.text).status_code == 303


def test_large_change_needs_its_count_typed(console: RunningSite) -> None:
    SIZE["count"] = 12
    with console.client() as client:
        shown = send(client)
        assert "Type 12 to confirm" in shown.text
        assert confirm(client, shown.text).status_code == 409
        assert confirm(client, shown.text, confirmed_count="11").status_code == 409
        assert APPLIED == []
        assert confirm(client, shown.text, confirmed_count="12").status_code == 303
        assert APPLIED[0].confirmed == 12


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501])
def test_change_needs_a_reason(console: RunningSite, reason: str) -> None:
    with console.client() as client:
        shown = send(client)
        refused = confirm(client, shown.text, reason=reason)
        assert refused.status_code == 400
        assert "reason" in refused.text
        assert APPLIED == []


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


# tokens, roles and sessions


def test_console_with_tokens_asks_for_one(locked: RunningSite) -> None:
    with locked.client() as client:
        sent = client.get("/things")
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/things")
        for path in (f"/tiles/{STORED}", "/wmts", "/live/health"):
            assert client.get(path).status_code == 401
        assert client.post("/things/change", data={}).status_code == 401
        style = client.get("/login").text.split('stylesheet" href="')[1].partition('"')[0]
        assert client.get(style).status_code == 200


def log_in(client: httpx.Client, token: str, **more: str) -> httpx.Response:
    return client.post("/login", data={"actor": "Ada", "token": token, "next": "/things", **more})


def test_operator_logs_in_acts_and_logs_out(locked: RunningSite) -> None:
    with locked.client() as client:
        assert log_in(client, OPERATOR_TOKEN).headers["location"] == "/things"
        shown = send(client)
        assert confirm(client, shown.text).status_code == 303
        assert APPLIED[0].by == "Ada"
        client.post("/logout", data={"csrf_token": find_csrf_token(shown.text)})
        assert client.get("/things").status_code == 303


def test_viewer_sees_everything_and_changes_nothing(locked: RunningSite) -> None:
    with locked.client() as client:
        log_in(client, VIEWER_TOKEN)
        assert client.get("/things").status_code == 200
        assert send(client).status_code == 403
        assert APPLIED == []


@pytest.mark.parametrize("token", ["", "wrong", OPERATOR_TOKEN[:-1], "\0", "é" * 20])
def test_wrong_token_is_refused(locked: RunningSite, token: str) -> None:
    with locked.client() as client:
        assert log_in(client, token).status_code == 403
        assert client.get("/things").status_code == 303


def test_login_needs_a_name_and_goes_to_no_other_site(locked: RunningSite) -> None:
    with locked.client() as client:
        assert log_in(client, OPERATOR_TOKEN, actor=" ").status_code == 403
        for target in ("//evil.example", "https://evil.example", "/\\evil.example", "x"):
            assert log_in(client, OPERATOR_TOKEN, next=target).headers["location"] == "/"
            locked.server.app.guard._logins._buckets.clear()
        client.headers["origin"] = "https://evil.example"
        assert log_in(client, OPERATOR_TOKEN).status_code == 403


def test_logins_are_limited(locked: RunningSite) -> None:
    with locked.client() as client:
        codes = [log_in(client, "wrong").status_code for _ in range(8)]
        assert codes == [403] * 5 + [429] * 3
        assert "retry-after" in log_in(client, OPERATOR_TOKEN).headers


def test_token_in_a_header_can_only_read(locked: RunningSite) -> None:
    with locked.client() as client:
        bearer = {"authorization": f"Bearer {VIEWER_TOKEN}"}
        assert client.get("/tiles/merged.json", headers=bearer).status_code in {200, 404}
        assert client.get("/wmts", auth=("any", OPERATOR_TOKEN)).status_code == 200
        assert client.get("/wmts", auth=("any", "wrong")).status_code == 401
        assert client.get("/wmts", headers={"authorization": "Basic !"}).status_code == 401
        assert client.get("/wmts", headers={"authorization": "Digest x"}).status_code == 401
        sent = client.post("/things/change", auth=("any", OPERATOR_TOKEN), data={"name": "a"})
        assert (sent.status_code, APPLIED) == (401, [])


def test_session_ends(locked: RunningSite, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked.client() as client:
        # Sent by hand: a client that keeps cookies would forget an expired one by itself.
        cookie = log_in(client, OPERATOR_TOKEN).headers["set-cookie"].partition(";")[0]
        client.cookies.clear()
        assert client.get("/things", headers={"cookie": cookie}).status_code == 200
        later_s = time.time() + 13 * 3_600
        monkeypatch.setattr("tileferry.entrypoints.web.guard.time.time", lambda: later_s)
        assert client.get("/things", headers={"cookie": cookie}).status_code == 303


def test_read_only_console_refuses_every_change(shared_database_url: str, web_home: Path) -> None:
    serve = {"read_only": True}
    with serve_site(web_home, shared_database_url, serve) as site, site.client() as client:
        assert "read-only" in client.get("/things").text
        assert send(client).status_code == 403
        assert APPLIED == []


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


# beyond loopback


def test_site_with_tls_has_a_secure_cookie_and_says_so(
    shared_database_url: str, web_home: Path, tokens: Tokens, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "map.example")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    serve = {
        "token_file": tokens.operator,
        "tls_cert": tmp_path / "cert.pem",
        "tls_key": tmp_path / "key.pem",
        "allowed_hosts": ["map.example"],
    }
    with (
        serve_site(web_home, shared_database_url, serve) as site,
        site.client(verify=trust) as client,
    ):
        assert site.url.startswith("https://")
        logged_in = log_in(client, OPERATOR_TOKEN)
        cookie = logged_in.headers["set-cookie"]
        assert cookie.startswith("__Host-tileferry-")
        assert "; Secure" in cookie
        assert logged_in.headers["strict-transport-security"] == "max-age=31536000"
        assert client.get("/things").status_code == 200
        assert client.get("/wmts", headers={"host": "map.example"}).status_code == 200
        assert client.get("/wmts", headers={"host": "evil.example"}).status_code == 421


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
