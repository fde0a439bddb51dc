"""Facts about an installation become findings, each bad one with its cure."""

from datetime import UTC, datetime, timedelta

import pytest

from tileferry.domain import health
from tileferry.domain.errors import DatabaseError, SatelliteProviderError
from tileferry.domain.health import Verdict
from tileferry.domain.tiles import ProviderFault
from tileferry.domain.tiles.bound_cache import CacheFit

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
GIB = 1024**3
SERVER = "https://imagery.example"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [((3, 10, 9), Verdict.FAILED), ((3, 11, 0), Verdict.OK), ((3, 14, 1), Verdict.OK)],
)
def test_python_must_be_new_enough(version: tuple[int, int, int], verdict: Verdict) -> None:
    assert health.of_python(version).verdict is verdict


@pytest.mark.parametrize(
    ("free", "left", "verdict", "named"),
    [
        (10, 5, Verdict.OK, None),
        (3, 5, Verdict.FAILED, "c11.cache_root"),
        (2, 5, Verdict.FAILED, "c11.cache_root"),
        (10, 0, Verdict.WARNING, "c6.budget_bytes"),
        (10, -1, Verdict.WARNING, "c6.budget_bytes"),
    ],
)
def test_a_disk_needs_space_beyond_its_reserve(
    free: int, left: int, verdict: Verdict, named: str | None
) -> None:
    finding = health.of_disk(free * GIB, 3 * GIB, left * GIB)
    assert finding.verdict is verdict
    assert f"{free}.0 GiB free, and 3.0 GiB must stay free" in finding.found
    assert "-" not in finding.found
    assert (finding.cure is None) if named is None else (named in (finding.cure or ""))


@pytest.mark.parametrize(
    ("skew_s", "verdict", "found"),
    [
        (0, Verdict.OK, "agrees"),
        (-60, Verdict.OK, "agrees within 60 s"),
        (61, Verdict.WARNING, "this machine is 61 s ahead of it"),
        (-3600, Verdict.WARNING, "this machine is 3600 s behind it"),
    ],
)
def test_a_clock_is_judged_by_another(skew_s: int, verdict: Verdict, found: str) -> None:
    finding = health.of_clock("provider's clock", NOW + timedelta(seconds=skew_s), NOW)
    assert (finding.verdict, finding.found) == (verdict, found)


@pytest.mark.parametrize(
    ("days", "verdict"), [(None, Verdict.OK), (14, Verdict.OK), (13, Verdict.WARNING)]
)
def test_a_certificate_should_outlast_the_next_flight(days: int | None, verdict: Verdict) -> None:
    expires_at = None if days is None else NOW + timedelta(days=days)
    assert health.of_certificate(expires_at, NOW).verdict is verdict


@pytest.mark.parametrize(
    ("status", "verdict", "fault"),
    [
        (200, Verdict.OK, None),
        (401, Verdict.FAILED, ProviderFault.UNAUTHORIZED),
        (403, Verdict.FAILED, ProviderFault.UNAUTHORIZED),
        (404, Verdict.FAILED, None),
        (408, Verdict.WARNING, None),
        (429, Verdict.WARNING, None),
        (500, Verdict.WARNING, None),
        (503, Verdict.WARNING, None),
    ],
)
def test_an_answer_is_judged_by_its_status(
    status: int, verdict: Verdict, fault: ProviderFault | None
) -> None:
    finding = health.of_answer(status, SERVER, "/home/me/key")
    assert finding.verdict is verdict
    assert SERVER in finding.found
    assert (finding.cure is None) is (verdict is Verdict.OK)
    if verdict is Verdict.FAILED:
        assert isinstance(finding.error, SatelliteProviderError)
        assert finding.error.status == status
        assert finding.error.fault is fault or fault is None


def test_a_refused_key_is_told_with_where_it_came_from() -> None:
    finding = health.of_answer(401, SERVER, "TILEFERRY_C11_SERVICE_API_KEY")
    assert finding.found == f"{SERVER} refuses the key (401)"
    assert finding.cure == "check the key, which came from TILEFERRY_C11_SERVICE_API_KEY"


def test_an_answer_that_is_no_listing_asks_for_the_address() -> None:
    error = SatelliteProviderError(reason="response schema mismatch", url=SERVER)
    finding = health.of_no_listing(error)
    assert (finding.verdict, finding.found, finding.error) == (Verdict.FAILED, str(error), error)
    assert finding.cure == "is c11.satellite_provider_url the provider's address?"


def test_a_log_that_cannot_be_written_is_a_warning() -> None:
    assert health.of_log("/log/a.jsonl", None).verdict is Verdict.OK
    finding = health.of_log("/log/a.jsonl", "Not a directory")
    assert finding.verdict is Verdict.WARNING
    assert "/log/a.jsonl cannot be written (Not a directory)" in finding.found
    assert "log.file" in (finding.cure or "")


def test_variables_that_nobody_reads_are_warnings_with_what_was_meant() -> None:
    first, second = health.of_variables({"TILEFERRY_A\x1b": "TILEFERRY_AB", "TILEFERRY_Z": None})
    assert (first.verdict, first.cure) == (Verdict.WARNING, "did you mean TILEFERRY_AB?")
    assert first.found == "TILEFERRY_A\\x1b is no setting, and is ignored"
    assert "config show" in (second.cure or "")
    assert [*health.of_variables({})] == []


@pytest.mark.parametrize(("mode", "verdict"), [(0o700, Verdict.OK), (0o750, Verdict.WARNING)])
def test_a_folder_is_for_its_owner_alone(mode: int, verdict: Verdict) -> None:
    finding = health.of_mode("cache", mode, "chmod 700 here")
    assert finding.verdict is verdict
    assert f"mode 0{mode:o}" in finding.found


@pytest.mark.parametrize(
    ("fault", "cure"),
    [(ProviderFault.INSECURE, "certificate"), (ProviderFault.UNREACHABLE, "the link")],
)
def test_an_error_of_the_provider_gets_a_cure(fault: ProviderFault, cure: str) -> None:
    error = SatelliteProviderError(reason="failed", url=SERVER, fault=fault)
    finding = health.met("provider", error)
    assert (finding.verdict, finding.error) == (Verdict.FAILED, error)
    assert cure in (finding.cure or "")


def test_other_errors_say_what_to_do_by_themselves() -> None:
    error = DatabaseError(problem="is away", remedy="start it")
    finding = health.met("database", error)
    assert (finding.found, finding.cure) == (str(error), None)


def test_what_could_not_be_seen_names_what_it_needs() -> None:
    finding = health.not_seen("schema", "database")
    assert (finding.verdict, finding.found) == (Verdict.NOT_SEEN, "needs the database")


def test_a_database_that_is_this_caches_or_can_become_so_is_well() -> None:
    found = {fit: health.of_binding(fit) for fit in (CacheFit.BOUND, CacheFit.FREE)}
    assert {finding.verdict for finding in found.values()} == {Verdict.OK}
    assert "first download" in found[CacheFit.FREE].found
