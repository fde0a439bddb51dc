"""``doctor`` finds what is wrong with an installation, and says how to mend it."""

import socket
import ssl
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from support.area_operator import DOWNLOAD, AreaOperator
from support.operator import run_here
from support.raw_server import answering, raw_server
from support.scripted_provider import KEY, TILES, ScriptedProvider, answering_with

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.http import ProviderAddress, new_client
from tileferry.adapters.http.probe import probed
from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.migrate import downgrade
from tileferry.domain.errors import SatelliteProviderError

ALL_WELL = [
    "tileferry", "Python", "configuration", "log", "database", "database's clock", "schema",
    "cache", "lock", "cache's database", "disk", "key", "provider", "certificate",
    "provider's clock",
]  # fmt: skip


def findings() -> dict[str, dict[str, Any]]:
    ran = run_here("doctor", "--json")
    assert ran.json["schema"] == "tileferry.doctor.v1"
    assert KEY not in ran.out + ran.err
    return {finding["subject"]: {**finding, "code": ran.code} for finding in ran.json["findings"]}


@pytest.mark.usefixtures("operator")
def test_a_sound_installation_is_fit_for_work() -> None:
    found = findings()
    assert [(name, finding["verdict"]) for name, finding in found.items()] == [
        (name, "ok") for name in ALL_WELL
    ]
    ran = run_here("doctor")
    assert ran.code == 0
    assert ran.out.endswith("\nFit for work.\n")


def test_looking_changes_nothing(operator: AreaOperator) -> None:
    run_here("doctor")
    assert not operator.cache_root.exists()


@pytest.mark.usefixtures("operator")
def test_an_old_schema_is_found_with_its_cure(database: Database) -> None:
    downgrade(database, "0001")
    found = findings()
    assert (found["schema"]["verdict"], found["schema"]["code"]) == ("failed", 7)
    assert "run tileferry db upgrade" in found["schema"]["found"]
    assert found["disk"]["verdict"] == "not_seen"
    assert found["provider"]["verdict"] == "ok"


@pytest.mark.usefixtures("operator")
def test_a_wrong_setting_ends_with_usage_and_leaves_nothing_to_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "much")
    found = findings()
    assert (found["configuration"]["verdict"], found["configuration"]["code"]) == ("failed", 2)
    assert "c6.budget_bytes" in found["configuration"]["found"]
    assert found["configuration"]["found"].endswith("correct it in TILEFERRY_C6_BUDGET_BYTES")
    assert {one["verdict"] for name, one in found.items() if name not in ALL_WELL[:3]} == {
        "not_seen"
    }


@pytest.mark.usefixtures("operator")
def test_a_misspelt_variable_is_named_with_what_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOTT", "/tiles")
    finding = findings()["environment"]
    assert (finding["verdict"], finding["code"]) == ("warning", 0)
    assert "TILEFERRY_C11_CACHE_ROOTT" in finding["found"]
    assert finding["cure"] == "did you mean TILEFERRY_C11_CACHE_ROOT?"


def test_a_log_that_cannot_be_written_is_found_as_the_next_command_finds_it(
    operator: AreaOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = operator.home / "file"
    in_the_way.touch()
    for place in (in_the_way / "log" / "a.jsonl", operator.home):
        monkeypatch.setenv("TILEFERRY_LOG_FILE", str(place))
        finding = findings()["log"]
        assert (finding["verdict"], finding["code"]) == ("warning", 0)
        assert f"{place} cannot be written" in finding["found"]
        ran = run_here(*DOWNLOAD)
        assert ran.code == 0
        assert "cannot be written; going on without it" in " ".join(ran.err.split())
    monkeypatch.setenv("TILEFERRY_LOG_FILE", str(in_the_way))
    assert findings()["log"]["verdict"] == "ok"


@pytest.mark.parametrize("below", ["", "cache", "far/below"])
def test_a_cache_that_cannot_be_made_fails_as_the_next_command_does(
    operator: AreaOperator, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    in_the_way = operator.home / "file"
    in_the_way.touch()
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(in_the_way / below))
    finding = findings()["cache"]
    assert (finding["verdict"], finding["code"]) == ("failed", 7)
    cure = "set c11.cache_root to a folder that can be made and written"
    assert cure in finding["found"]
    ran = run_here(*DOWNLOAD)
    assert (ran.code, cure in " ".join(ran.err.split())) == (7, True)


@pytest.mark.usefixtures("operator")
def test_a_key_that_cannot_be_sent_fails_as_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", "")
    found = findings()
    assert (found["key"]["verdict"], found["key"]["code"]) == ("failed", 2)
    assert "c11.service_api_key: is empty" in found["key"]["found"]
    assert found["provider"]["verdict"] == "not_seen"
    file = tmp_path / "key"
    file.touch(0o600)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY_FILE", str(file))
    told = findings()["key"]["found"]
    assert told.startswith("c11.service_api_key_file: is empty")
    assert told.endswith(f"write the key into {file}")


@pytest.mark.usefixtures("operator")
def test_a_refused_key_is_told_with_where_it_came_from(
    provider: ScriptedProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.always[TILES] = answering_with(401)
    variable = "TILEFERRY_C11_SERVICE_API_KEY"
    assert findings()["provider"]["cure"] == f"check the key, which came from {variable}"
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(KEY)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY_FILE", str(file))
    assert findings()["provider"]["cure"] == f"check the key, which came from {file}"


@pytest.mark.usefixtures("operator")
def test_a_key_file_that_is_open_to_others_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY_FILE", str(file))
    assert f"chmod 600 {file}" in findings()["key"]["found"]
    file.chmod(0o600)
    assert findings()["key"]["verdict"] == "ok"


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [(401, "failed", 6), (404, "failed", 5), (429, "warning", 0), (503, "warning", 0)],
)
def test_a_provider_s_answer_decides_the_exit_code(
    provider: ScriptedProvider, status: int, verdict: str, code: int
) -> None:
    provider.always[TILES] = answering_with(status)
    finding = findings()["provider"]
    assert (finding["verdict"], finding["code"]) == (verdict, code)
    assert finding["cure"]


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        ("text/html", b"<html>log in</html>", "'text/html' is not application/json"),
        ("application/json", b'{"login": "here"}', "is missing"),
    ],
)
def test_who_answers_with_something_else_than_a_listing_is_no_provider(
    monkeypatch: pytest.MonkeyPatch, kind: str, body: bytes, problem: str
) -> None:
    head = f"HTTP/1.1 200 OK\nContent-Type: {kind}\nContent-Length: {len(body)}"
    with raw_server(answering(head, body)) as server:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", server.url)
        found = findings()
    finding = found["provider"]
    assert (finding["verdict"], finding["code"]) == ("failed", 5)
    assert f"response schema mismatch: {problem}" in finding["found"]
    assert finding["cure"] == "is c11.satellite_provider_url the provider's address?"
    assert found["certificate"]["verdict"] == "ok"


@pytest.mark.usefixtures("operator")
def test_a_provider_that_throttles_the_second_question_is_a_warning(
    provider: ScriptedProvider,
) -> None:
    page = httpx.Response(200, json={"tiles": [], "next": None})
    provider.once[TILES] = [lambda _request: page, answering_with(429)]
    finding = findings()["provider"]
    assert (finding["verdict"], finding["code"]) == ("warning", 0)


@pytest.mark.usefixtures("operator")
def test_a_provider_that_is_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", "http://127.0.0.1:1")
    finding = findings()["provider"]
    assert (finding["verdict"], finding["code"]) == ("failed", 5)
    ran = run_here("doctor")
    assert "→ check the link, and c11.satellite_provider_url" in ran.out
    assert ran.out.endswith("1 failed: mend the first one, then run it again.\n")


def test_a_clock_that_is_off_and_a_cache_in_use_are_warnings(
    operator: AreaOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.cache_root.mkdir()
    operator.cache_root.chmod(0o755)
    yesterday = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    body = b'{"tiles": [], "next": null}'
    head = (
        f"HTTP/1.1 200 OK\nDate: {yesterday}\n"
        f"Content-Type: application/json\nContent-Length: {len(body)}"
    )
    lock = FileCacheLock(root=operator.cache_root)
    with raw_server(answering(head, body)) as server:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", server.url)
        lock.acquire()
        try:
            found = findings()
        finally:
            lock.release()
        assert "ahead of it" in found["provider's clock"]["found"]
        assert (found["lock"]["verdict"], found["lock"]["code"]) == ("warning", 0)
        assert found["cache"]["cure"] == f"chmod 700 {operator.cache_root}"
        assert findings()["lock"]["found"] == "free"
        assert run_here("doctor").out.endswith("Fit for work, with 2 to look at.\n")


@pytest.mark.parametrize("date", ["soon", "Mon, 16 Nov 2026 12:00:00 +99999999999999999999"])
def test_a_provider_without_a_clock_is_not_judged_by_it(date: str) -> None:
    with raw_server(answering(f"HTTP/1.1 200 OK\nDate: {date}\nContent-Length: 0")) as server:
        address = ProviderAddress(url=server.url, service_api_key=KEY)
        with closing(new_client(address)) as client:
            assert probed(client, "/").date is None


def test_a_certificate_s_end_is_seen(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    until = datetime(2029, 5, 4, 3, 2, 1, tzinfo=UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", not_after=until).configure_cert(context)
    with raw_server(answering("HTTP/1.1 200 OK\nContent-Length: 0"), tls=context) as server:
        address = ProviderAddress(
            url=server.url,
            service_api_key=KEY,
            ca_file=tmp_path / "ca.pem",
        )
        with closing(new_client(address)) as client:
            signs = probed(client, "/")
    assert signs.certificate_expires_at == until


def test_invariant_24_a_provider_that_never_comes_to_the_point_is_left() -> None:
    def drips(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        with suppress(OSError):
            for _ in range(100):
                connection.sendall(b"x")
                time.sleep(0.05)

    with raw_server(drips) as server:
        address = ProviderAddress(url=server.url, service_api_key=KEY)
        with (
            closing(new_client(address)) as client,
            pytest.raises(SatelliteProviderError, match="no answer in time"),
        ):
            probed(client, "/", deadline_s=0.3)
