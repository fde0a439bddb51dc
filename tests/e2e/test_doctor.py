"""``doctor`` finds what is wrong with an installation, and says how to mend it."""

import ssl
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.area_operator import AreaOperator
from support.operator import run_here
from support.raw_server import answering, raw_server
from support.scripted_provider import KEY, TILES, ScriptedProvider, answering_with

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.http import ProviderAddress, new_client
from tileferry.adapters.http.probe import probed
from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.migrate import downgrade

ALL_WELL = [
    "Python", "configuration", "log", "database", "database's clock", "schema", "cache", "lock",
    "disk", "key", "provider", "certificate", "provider's clock",
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
    assert {one["verdict"] for name, one in found.items() if name not in ALL_WELL[:2]} == {
        "not_seen"
    }


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
    head = f"HTTP/1.1 200 OK\nDate: {yesterday}\nContent-Length: 0"
    lock = FileCacheLock(root=operator.cache_root)
    with raw_server(answering(head)) as server:
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


def test_a_provider_without_a_clock_is_not_judged_by_it() -> None:
    with raw_server(answering("HTTP/1.1 200 OK\nDate: soon\nContent-Length: 0")) as server:
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
