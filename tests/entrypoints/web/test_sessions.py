"""Tokens, roles and sessions of the console."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from attrs import frozen
from support.things_page import APPLIED, confirm, send
from support.web_site import (
    OPERATOR_TOKEN,
    STORED,
    VIEWER_TOKEN,
    RunningSite,
    find_csrf_token,
    serve_site,
)

pytestmark = pytest.mark.usefixtures("things_page")


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
def locked_site(shared_database_url: str, web_home: Path, tokens: Tokens) -> Iterator[RunningSite]:
    """Run a site that needs a token."""
    serve = {"token_file": tokens.operator, "viewer_token_file": tokens.viewer}
    with serve_site(web_home, shared_database_url, serve) as running:
        yield running


def test_console_with_tokens_asks_for_one(locked_site: RunningSite) -> None:
    with locked_site.client() as client:
        sent = client.get("/things")
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/things")
        for path in (f"/tiles/{STORED}", "/wmts", "/live/health"):
            assert client.get(path).status_code == 401
        assert client.post("/things/change", data={}).status_code == 401
        style = client.get("/login").text.split('stylesheet" href="')[1].partition('"')[0]
        assert client.get(style).status_code == 200


def log_in(client: httpx.Client, token: str, **more: str) -> httpx.Response:
    return client.post("/login", data={"actor": "Ada", "token": token, "next": "/things", **more})


def test_operator_logs_in_acts_and_logs_out(locked_site: RunningSite) -> None:
    with locked_site.client() as client:
        assert log_in(client, OPERATOR_TOKEN).headers["location"] == "/things"
        shown = send(client)
        assert confirm(client, shown.text).status_code == 303
        assert APPLIED[0].by == "Ada"
        client.post("/logout", data={"csrf_token": find_csrf_token(shown.text)})
        assert client.get("/things").status_code == 303


def test_viewer_sees_everything_and_changes_nothing(locked_site: RunningSite) -> None:
    with locked_site.client() as client:
        log_in(client, VIEWER_TOKEN)
        assert client.get("/things").status_code == 200
        assert send(client).status_code == 403
        assert APPLIED == []


@pytest.mark.parametrize("token", ["", "wrong", OPERATOR_TOKEN[:-1], "\0", "é" * 20])
def test_wrong_token_is_refused(locked_site: RunningSite, token: str) -> None:
    with locked_site.client() as client:
        assert log_in(client, token).status_code == 403
        assert client.get("/things").status_code == 303


def test_login_needs_a_name_and_goes_to_no_other_site(locked_site: RunningSite) -> None:
    with locked_site.client() as client:
        assert log_in(client, OPERATOR_TOKEN, actor=" ").status_code == 403
        for target in ("//evil.example", "https://evil.example", "/\\evil.example", "x"):
            assert log_in(client, OPERATOR_TOKEN, next=target).headers["location"] == "/"
            locked_site.server.app.guard._logins._buckets.clear()
        client.headers["origin"] = "https://evil.example"
        assert log_in(client, OPERATOR_TOKEN).status_code == 403


def test_logins_are_limited(locked_site: RunningSite) -> None:
    with locked_site.client() as client:
        codes = [log_in(client, "wrong").status_code for _ in range(8)]
        assert codes == [403] * 5 + [429] * 3
        assert "retry-after" in log_in(client, OPERATOR_TOKEN).headers


def test_token_in_a_header_can_only_read(locked_site: RunningSite) -> None:
    with locked_site.client() as client:
        bearer = {"authorization": f"Bearer {VIEWER_TOKEN}"}
        assert client.get("/tiles/merged.json", headers=bearer).status_code in {200, 404}
        assert client.get("/wmts", auth=("any", OPERATOR_TOKEN)).status_code == 200
        assert client.get("/wmts", auth=("any", "wrong")).status_code == 401
        assert client.get("/wmts", headers={"authorization": "Basic !"}).status_code == 401
        assert client.get("/wmts", headers={"authorization": "Digest x"}).status_code == 401
        sent = client.post("/things/change", auth=("any", OPERATOR_TOKEN), data={"name": "a"})
        assert (sent.status_code, APPLIED) == (401, [])


def test_session_ends(locked_site: RunningSite, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked_site.client() as client:
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


def test_site_with_tls_sends_a_secure_cookie_and_requires_tls_later(
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
