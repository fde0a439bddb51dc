"""Facts about an installation become findings, each bad one with its cure."""

from datetime import UTC, datetime, timedelta

import attrs
import pytest
from attrs import evolve

from tileferry.domain import health
from tileferry.domain.audit import AlertChanged, AlertState
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    Remedy,
    SatelliteProviderError,
)
from tileferry.domain.health import CheckStatus
from tileferry.domain.server_settings import ServerSettings
from tileferry.domain.tiles import ProviderFault, TileId
from tileferry.domain.tiles.cache_binding import CacheFit

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
GIB = 1024**3
SERVER = "https://imagery.example"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [((3, 10, 9), CheckStatus.FAILED), ((3, 11, 0), CheckStatus.OK), ((3, 14, 1), CheckStatus.OK)],
)
def test_old_python_version_fails(version: tuple[int, int, int], verdict: CheckStatus) -> None:
    assert health.check_python(version).verdict is verdict


@pytest.mark.parametrize(
    ("free", "left", "verdict", "named"),
    [
        (10, 5, CheckStatus.OK, None),
        (3, 5, CheckStatus.FAILED, "c11.cache_root"),
        (2, 5, CheckStatus.FAILED, "c11.cache_root"),
        (10, 0, CheckStatus.WARNING, "c6.budget_bytes"),
        (10, -1, CheckStatus.WARNING, "c6.budget_bytes"),
    ],
)
def test_disk_check_requires_space_beyond_reserve(
    free: int, left: int, verdict: CheckStatus, named: str | None
) -> None:
    finding = health.check_disk(free * GIB, 3 * GIB, left * GIB)
    assert finding.verdict is verdict
    assert f"{free}.0 GiB free, and 3.0 GiB must stay free" in finding.found
    assert "-" not in finding.found
    assert (finding.cure is None) if named is None else (named in (finding.cure or ""))


@pytest.mark.parametrize(
    ("skew_s", "verdict", "found"),
    [
        (0, CheckStatus.OK, "agrees"),
        (-60, CheckStatus.OK, "agrees within 60 s"),
        (61, CheckStatus.WARNING, "this machine is 61 s ahead of it"),
        (-3600, CheckStatus.WARNING, "this machine is 3600 s behind it"),
    ],
)
def test_clock_skew_above_60_s_is_a_warning(skew_s: int, verdict: CheckStatus, found: str) -> None:
    finding = health.check_clock("provider's clock", NOW + timedelta(seconds=skew_s), NOW)
    assert (finding.verdict, finding.found) == (verdict, found)


@pytest.mark.parametrize(
    ("days", "verdict"), [(None, CheckStatus.OK), (14, CheckStatus.OK), (13, CheckStatus.WARNING)]
)
def test_certificate_expiring_within_14_days_is_a_warning(
    days: int | None, verdict: CheckStatus
) -> None:
    expires_at = None if days is None else NOW + timedelta(days=days)
    assert health.check_certificate(expires_at, NOW).verdict is verdict


@pytest.mark.parametrize(
    ("status", "verdict", "fault"),
    [
        (200, CheckStatus.OK, None),
        (401, CheckStatus.FAILED, ProviderFault.UNAUTHORIZED),
        (403, CheckStatus.FAILED, ProviderFault.UNAUTHORIZED),
        (404, CheckStatus.FAILED, None),
        (408, CheckStatus.WARNING, None),
        (429, CheckStatus.WARNING, None),
        (500, CheckStatus.WARNING, None),
        (503, CheckStatus.WARNING, None),
    ],
)
def test_provider_check_verdict_depends_on_http_status(
    status: int, verdict: CheckStatus, fault: ProviderFault | None
) -> None:
    finding = health.check_provider_status(status, SERVER, "/home/me/key")
    assert finding.verdict is verdict
    assert SERVER in finding.found
    assert (finding.cure is None) is (verdict is CheckStatus.OK)
    if verdict is CheckStatus.FAILED:
        assert isinstance(finding.error, SatelliteProviderError)
        assert finding.error.status == status
        assert finding.error.fault is fault or fault is None


def test_rejected_key_finding_names_its_origin() -> None:
    finding = health.check_provider_status(401, SERVER, "TILEFERRY_C11_SERVICE_API_KEY")
    assert finding.found == f"{SERVER} rejects the API key (401)"
    assert finding.cure == "check the key, which came from TILEFERRY_C11_SERVICE_API_KEY"


def test_invalid_listing_suggests_checking_provider_url() -> None:
    error = SatelliteProviderError(reason="response schema mismatch", url=SERVER)
    finding = health.report_invalid_listing(error)
    assert (finding.verdict, finding.found, finding.error) == (
        CheckStatus.FAILED,
        str(error),
        error,
    )
    assert finding.cure == "check that c11.satellite_provider_url is the provider's address"


def test_unwritable_log_is_a_warning() -> None:
    assert health.check_log("/log/a.jsonl", None).verdict is CheckStatus.OK
    finding = health.check_log("/log/a.jsonl", "Not a directory")
    assert finding.verdict is CheckStatus.WARNING
    assert "/log/a.jsonl cannot be written (Not a directory)" in finding.found
    assert "log.file" in (finding.cure or "")


def test_unknown_variables_fail_with_suggestion() -> None:
    first, second = health.check_variables({"TILEFERRY_A\x1b": "TILEFERRY_AB", "TILEFERRY_Z": None})
    assert (first.verdict, first.cure) == (CheckStatus.FAILED, "did you mean TILEFERRY_AB?")
    assert first.found == "TILEFERRY_A\\x1b is not a setting"
    assert isinstance(first.error, InvalidValueError)
    assert second.cure is Remedy.LIST_SETTINGS
    assert [*health.check_variables({})] == []


@pytest.mark.parametrize(
    ("mode", "verdict"), [(0o700, CheckStatus.OK), (0o750, CheckStatus.WARNING)]
)
def test_directory_mode_open_to_others_is_a_warning(mode: int, verdict: CheckStatus) -> None:
    finding = health.check_mode("cache", mode, "chmod 700 here")
    assert finding.verdict is verdict
    assert f"mode 0{mode:o}" in finding.found


@pytest.mark.parametrize(
    ("fault", "cure"),
    [(ProviderFault.INSECURE, "certificate"), (ProviderFault.UNREACHABLE, "the link")],
)
def test_provider_error_finding_has_remedy(fault: ProviderFault, cure: str) -> None:
    error = SatelliteProviderError(reason="failed", url=SERVER, fault=fault)
    finding = health.report_provider_error(error, "xyz.url_template")
    assert (finding.verdict, finding.error) == (CheckStatus.FAILED, error)
    assert cure in (finding.cure or "")
    assert ("xyz.url_template" in (finding.cure or "")) is (fault is ProviderFault.UNREACHABLE)


def test_other_error_finding_has_no_extra_remedy() -> None:
    error = DatabaseError(problem="is away", remedy="start it")
    finding = health.from_error("database", error)
    assert (finding.found, finding.cure) == (str(error), None)


def test_skipped_check_names_its_prerequisite() -> None:
    finding = health.skipped("schema", "database")
    assert (finding.verdict, finding.found) == (CheckStatus.NOT_SEEN, "needs the database")


def test_bound_or_unbound_database_is_ok() -> None:
    found = {fit: health.check_binding(fit) for fit in (CacheFit.BOUND, CacheFit.FREE)}
    assert {finding.verdict for finding in found.values()} == {CheckStatus.OK}
    assert "first download" in found[CacheFit.FREE].found


def test_opentelemetry_without_sdk_is_a_warning() -> None:
    assert health.check_opentelemetry(has_sdk=True).verdict is CheckStatus.OK
    missing = health.check_opentelemetry(has_sdk=False)
    assert missing.verdict is CheckStatus.WARNING
    assert "opentelemetry-instrument" in (missing.cure or "")


def test_raised_alerts_are_warnings() -> None:
    assert [one.found for one in health.check_alerts([])] == ["none"]
    alert = AlertChanged(
        timestamp=datetime(2026, 11, 18, 4, tzinfo=UTC),
        retry_category="RETRY_API_REQUEST",
        state=AlertState.RAISED,
        retries=45,
        window_seconds=60.0,
        threshold_per_minute=10.0,
    )
    (found,) = health.check_alerts([alert])
    assert found.verdict is CheckStatus.WARNING
    assert found.found.startswith("RETRY_API_REQUEST: 45 retries in 60 s, limit 10 per minute;")
    (unlimited,) = health.check_alerts([evolve(alert, threshold_per_minute=None)])
    assert "the limit was removed" in unlimited.found


def test_undelivered_audit_events_are_warnings() -> None:
    (nothing,) = health.check_outboxes([])
    assert nothing.verdict is CheckStatus.OK
    found = list(health.check_outboxes(["postgres-1: 2 events", "jetstream-2: a gap of 1"]))
    assert [one.verdict for one in found] == [CheckStatus.WARNING] * 2
    assert found[0].found == "not delivered: postgres-1: 2 events"


STRONG = ServerSettings(
    fsync=True,
    full_page_writes=True,
    synchronous_commit=True,
    is_replica=False,
    is_read_only=False,
    is_pooled=False,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("durability", "ok", "each commit waits for the server's disk")]),
        (
            {"synchronous_commit": False, "is_pooled": True},
            [
                ("durability", "ok", "off on the server; our transactions turn it on"),
                ("pooler", "ok", "found; statements are not prepared"),
            ],
        ),
        (
            {"fsync": False, "full_page_writes": False},
            [
                ("durability", "warning", "fsync is off on the server: a power cut can lose"),
                ("durability", "warning", "full_page_writes is off on the server"),
            ],
        ),
    ],
)
def test_weak_server_settings_are_warnings(
    changes: dict[str, bool], expected: list[tuple[str, str, str]]
) -> None:
    found = list(health.check_server_settings(evolve(STRONG, **changes)))
    assert len(found) == len(expected)
    for finding, (subject, verdict, words) in zip(found, expected, strict=True):
        assert (finding.subject, finding.verdict) == (subject, verdict)
        assert words in finding.found


@pytest.mark.parametrize(
    ("is_pooled", "arrives", "expected"),
    [
        (False, None, []),
        (True, None, [("ok", "a pooler loses them: workers poll")]),
        (True, True, [("ok", "arrive through database_listen_url")]),
        (True, False, [("warning", "none arrives through database_listen_url: workers poll")]),
        (False, False, [("warning", "none arrives through database_listen_url: workers poll")]),
    ],
)
def test_lost_notifications_are_a_warning_if_a_listen_url_is_set(
    *, is_pooled: bool, arrives: bool | None, expected: list[tuple[str, str]]
) -> None:
    settings = evolve(STRONG, is_pooled=is_pooled)
    found = list(health.check_notifications(settings, arrives=arrives))
    assert [(one.subject, one.verdict) for one in found] == [
        ("notifications", verdict) for verdict, _ in expected
    ]
    assert all(words in one.found for one, (_, words) in zip(found, expected, strict=True))


def test_only_a_strong_server_is_ordinary() -> None:
    assert STRONG.is_ordinary
    for name, value in attrs.asdict(STRONG).items():
        assert not evolve(STRONG, **{name: not value}).is_ordinary, name


def test_start_of_a_command_reports_only_what_breaks_a_promise() -> None:
    assert not list(health.describe_weaknesses(STRONG))
    harmless = evolve(STRONG, synchronous_commit=False, is_pooled=True)
    assert not list(health.describe_weaknesses(harmless))
    weak = evolve(STRONG, fsync=False, full_page_writes=False, is_replica=True)
    fsync, pages, replica = health.describe_weaknesses(weak)
    assert fsync.endswith("damage the database; set fsync to on, unless the data may be lost")
    assert pages.startswith("full_page_writes is off on the server: a power cut can lose")
    assert replica.startswith("the server is a read-only replica: only commands that change")


def test_read_only_servers_are_refused() -> None:
    STRONG.check_writable()
    with pytest.raises(DatabaseError, match="read-only replica; use the address of the primary"):
        evolve(STRONG, is_replica=True, is_read_only=True).check_writable()
    with pytest.raises(DatabaseError, match="default_transaction_read_only is on"):
        evolve(STRONG, is_read_only=True).check_writable()


def test_tile_server_without_its_tiles_fails() -> None:
    tiles = [TileId(source="s", zoom=zoom, x=0, y=0) for zoom in (0, 3)]
    finding = health.report_absent_tiles("tiles.example.org", tiles, "xyz.url_template")
    assert finding.verdict is CheckStatus.FAILED
    assert finding.found.endswith("does not have the tile 0/0/0, 3/0/0")
    assert finding.cure is not None
    assert "xyz.url_template" in finding.cure
