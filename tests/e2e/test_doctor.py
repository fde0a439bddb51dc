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
from sqlalchemy import text
from support.download_operator import DOWNLOAD, DownloadOperator
from support.hostile_provider import respond_with, run_raw_server
from support.operator import run_in_process
from support.scripted_provider import KEY, TILES, ScriptedProvider, create_answer

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.http import ProviderAddress, new_client
from tileferry.adapters.http.provider import probe_provider
from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.migrate import downgrade
from tileferry.domain.errors import SatelliteProviderError

ALL_WELL = [
    "tileferry", "Python", "configuration", "log", "database", "durability",
    "database's clock", "schema", "audit log",
    "cache", "lock", "cache's database", "disk", "key", "provider", "certificate",
    "provider's clock",
]  # fmt: skip


def run_doctor() -> dict[str, dict[str, Any]]:
    ran = run_in_process("doctor", "--json")
    assert ran.json["schema"] == "tileferry.doctor.v1"
    assert KEY not in ran.out + ran.err
    return {finding["subject"]: {**finding, "code": ran.code} for finding in ran.json["findings"]}


@pytest.mark.usefixtures("operator")
def test_valid_installation_passes_all_checks() -> None:
    found = run_doctor()
    assert [(name, finding["verdict"]) for name, finding in found.items()] == [
        (name, "ok") for name in ALL_WELL
    ]
    ran = run_in_process("doctor")
    assert ran.code == 0
    assert ran.out.endswith("\nAll checks passed.\n")


@pytest.mark.parametrize(
    "command",
    [
        DOWNLOAD,
        ("worker", "--until-idle"),
        ("flight", "pin", "F1"),
        ("runs", "submit", *DOWNLOAD[:-4], "--flight", "F2", *DOWNLOAD[-2:]),
    ],
)
def test_read_only_database_is_refused_before_any_work(
    operator: DownloadOperator, database: Database, provider: ScriptedProvider, command: list[str]
) -> None:
    with database.read_connection() as connection:
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    refusal = "the database is read-only (default_transaction_read_only is on)"
    ran = operator.run_in_process(*command)
    assert (ran.code, refusal in " ".join(ran.err.split())) == (7, True), ran.err
    assert not provider.requests
    found = run_doctor()["database"]
    assert (found["verdict"], found["code"], refusal in found["found"]) == ("failed", 7, True)


def test_doctor_changes_nothing(operator: DownloadOperator) -> None:
    run_in_process("doctor")
    assert not operator.cache_root.exists()


@pytest.mark.usefixtures("operator")
def test_outdated_schema_is_reported_with_remedy(database: Database) -> None:
    downgrade(database, "0001")
    found = run_doctor()
    assert (found["schema"]["verdict"], found["schema"]["code"]) == ("failed", 7)
    assert "run `tileferry db upgrade`" in found["schema"]["found"]
    assert found["disk"]["verdict"] == "not_seen"
    assert found["provider"]["verdict"] == "ok"


@pytest.mark.usefixtures("operator")
def test_invalid_setting_is_usage_error_and_skips_other_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "much")
    found = run_doctor()
    assert (found["configuration"]["verdict"], found["configuration"]["code"]) == ("failed", 2)
    assert "c6.budget_bytes" in found["configuration"]["found"]
    assert found["configuration"]["found"].endswith("correct it in TILEFERRY_C6_BUDGET_BYTES")
    assert {one["verdict"] for name, one in found.items() if name not in ALL_WELL[:3]} == {
        "not_seen"
    }


@pytest.mark.usefixtures("operator")
def test_misspelled_variable_gets_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOTT", "/tiles")
    findings = run_doctor()
    finding = findings["environment"]
    assert (finding["verdict"], finding["code"]) == ("failed", 2)
    assert "TILEFERRY_C11_CACHE_ROOTT" in finding["found"]
    assert finding["cure"] == "did you mean TILEFERRY_C11_CACHE_ROOT?"
    assert findings["configuration"]["verdict"] == "not_seen"


def test_unwritable_log_is_warning_as_in_download(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = operator.home / "file"
    in_the_way.touch()
    for place in (in_the_way / "log" / "a.jsonl", operator.home):
        monkeypatch.setenv("TILEFERRY_LOG_FILE", str(place))
        finding = run_doctor()["log"]
        assert (finding["verdict"], finding["code"]) == ("warning", 0)
        assert f"{place} cannot be written" in finding["found"]
        ran = run_in_process(*DOWNLOAD)
        assert ran.code == 0
        assert f"Cannot write the log {place}; continuing without it" in " ".join(ran.err.split())
    monkeypatch.setenv("TILEFERRY_LOG_FILE", str(in_the_way))
    assert run_doctor()["log"]["verdict"] == "ok"


@pytest.mark.parametrize("below", ["", "cache", "far/below"])
def test_uncreatable_cache_root_fails_as_in_download(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    in_the_way = operator.home / "file"
    in_the_way.touch()
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(in_the_way / below))
    finding = run_doctor()["cache"]
    assert (finding["verdict"], finding["code"]) == ("failed", 7)
    cure = "set c11.cache_root to a folder that can be created and written"
    assert cure in finding["found"]
    ran = run_in_process(*DOWNLOAD)
    assert (ran.code, cure in " ".join(ran.err.split())) == (7, True)


@pytest.mark.usefixtures("operator")
def test_empty_key_fails_key_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", "")
    found = run_doctor()
    assert (found["key"]["verdict"], found["key"]["code"]) == ("failed", 2)
    assert "c11.service_api_key: is empty" in found["key"]["found"]
    assert found["provider"]["verdict"] == "not_seen"
    file = tmp_path / "key"
    file.touch(0o600)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY_FILE", str(file))
    told = run_doctor()["key"]["found"]
    assert told.startswith("c11.service_api_key_file: is empty")
    assert told.endswith(f"write the key into {file}")


@pytest.mark.usefixtures("operator")
def test_rejected_key_is_reported_with_its_origin(
    provider: ScriptedProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.always[TILES] = create_answer(401)
    variable = "TILEFERRY_C11_SERVICE_API_KEY"
    assert run_doctor()["provider"]["cure"] == f"check the key, which came from {variable}"
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(KEY)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY_FILE", str(file))
    assert run_doctor()["provider"]["cure"] == f"check the key, which came from {file}"


@pytest.mark.usefixtures("operator")
def test_world_readable_key_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY_FILE", str(file))
    assert f"chmod 600 {file}" in run_doctor()["key"]["found"]
    file.chmod(0o600)
    assert run_doctor()["key"]["verdict"] == "ok"


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [(401, "failed", 6), (404, "failed", 5), (429, "warning", 0), (503, "warning", 0)],
)
def test_provider_status_determines_verdict_and_exit_code(
    provider: ScriptedProvider, status: int, verdict: str, code: int
) -> None:
    provider.always[TILES] = create_answer(status)
    finding = run_doctor()["provider"]
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
def test_invalid_listing_fails_provider_check(
    monkeypatch: pytest.MonkeyPatch, kind: str, body: bytes, problem: str
) -> None:
    head = f"HTTP/1.1 200 OK\nContent-Type: {kind}\nContent-Length: {len(body)}"
    with run_raw_server(respond_with(head, body)) as server:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", server.url)
        found = run_doctor()
    finding = found["provider"]
    assert (finding["verdict"], finding["code"]) == ("failed", 5)
    assert f"response schema mismatch: {problem}" in finding["found"]
    assert finding["cure"] == "check that c11.satellite_provider_url is the provider's address"
    assert found["certificate"]["verdict"] == "ok"


@pytest.mark.usefixtures("operator")
def test_rate_limit_on_second_request_is_warning(
    provider: ScriptedProvider,
) -> None:
    page = httpx.Response(200, json={"tiles": [], "next": None})
    provider.once[TILES] = [lambda _request: page, create_answer(429)]
    finding = run_doctor()["provider"]
    assert (finding["verdict"], finding["code"]) == ("warning", 0)


@pytest.mark.usefixtures("operator")
def test_unreachable_provider_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", "http://127.0.0.1:1")
    finding = run_doctor()["provider"]
    assert (finding["verdict"], finding["code"]) == ("failed", 5)
    ran = run_in_process("doctor")
    assert "→ check the link, and c11.satellite_provider_url" in ran.out
    assert ran.out.endswith("1 failed. Fix the first one, then re-run.\n")


def test_clock_skew_and_locked_cache_are_warnings(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch
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
    with run_raw_server(respond_with(head, body)) as server:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", server.url)
        lock.acquire()
        try:
            found = run_doctor()
        finally:
            lock.release()
        assert "ahead of it" in found["provider's clock"]["found"]
        assert (found["lock"]["verdict"], found["lock"]["code"]) == ("warning", 0)
        assert found["cache"]["cure"] == f"chmod 700 {operator.cache_root}"
        assert run_doctor()["lock"]["found"] == "free"
        assert run_in_process("doctor").out.endswith("No check failed; 2 warnings.\n")


@pytest.mark.parametrize("date", ["soon", "Mon, 16 Nov 2026 12:00:00 +99999999999999999999"])
def test_invalid_date_header_is_ignored(date: str) -> None:
    with run_raw_server(
        respond_with(f"HTTP/1.1 200 OK\nDate: {date}\nContent-Length: 0")
    ) as server:
        address = ProviderAddress(url=server.url, service_api_key=KEY)
        with closing(new_client(address)) as client:
            assert probe_provider(client, "/").date is None


def test_certificate_expiry_is_read(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    until = datetime(2029, 5, 4, 3, 2, 1, tzinfo=UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", not_after=until).configure_cert(context)
    with run_raw_server(respond_with("HTTP/1.1 200 OK\nContent-Length: 0"), tls=context) as server:
        address = ProviderAddress(
            url=server.url,
            service_api_key=KEY,
            ca_file=tmp_path / "ca.pem",
        )
        with closing(new_client(address)) as client:
            signs = probe_provider(client, "/")
    assert signs.certificate_expires_at == until


def test_invariant_24_trickling_provider_is_aborted() -> None:
    def drips(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        with suppress(OSError):
            for _ in range(100):
                connection.sendall(b"x")
                time.sleep(0.05)

    with run_raw_server(drips) as server:
        address = ProviderAddress(url=server.url, service_api_key=KEY)
        with (
            closing(new_client(address)) as client,
            pytest.raises(SatelliteProviderError, match="no response in time"),
        ):
            probe_provider(client, "/", deadline_s=0.3)
