"""The rules of the installation checks: facts in, results with a remedy out."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from attrs import frozen

from tileferry.domain.audit import AlertChanged
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    Remedy,
    SatelliteProviderError,
    TileManagerError,
)
from tileferry.domain.retry import RateLimited, Retryable
from tileferry.domain.server_settings import ServerSettings
from tileferry.domain.text import format_bytes, format_utc, printable
from tileferry.domain.tiles import ProviderFault, TileId, classify_fault, fault_from_status
from tileferry.domain.tiles.cache_binding import CacheFit

PYTHON_MIN = (3, 11)
SKEW_MAX = timedelta(seconds=60)
"""Providers reject signatures with a wrong time; a tolerance of five minutes is usual."""
CERTIFICATE_LEFT_MIN = timedelta(days=14)
_HTTP_OK = 200


class CheckStatus(StrEnum):
    """The outcome of one check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_SEEN = "not_seen"
    """Skipped because a check that it depends on failed."""


@frozen(kw_only=True)
class CheckResult:
    """The result of one check."""

    subject: str
    verdict: CheckStatus
    found: str
    cure: str | None = None
    error: TileManagerError | None = None
    """The error, if one was raised."""


def ok(subject: str, found: str) -> CheckResult:
    return CheckResult(subject=subject, verdict=CheckStatus.OK, found=found)


def warning(subject: str, found: str, cure: str) -> CheckResult:
    return CheckResult(subject=subject, verdict=CheckStatus.WARNING, found=found, cure=cure)


def failed(
    subject: str, found: str, cure: str, *, error: TileManagerError | None = None
) -> CheckResult:
    return CheckResult(
        subject=subject, verdict=CheckStatus.FAILED, found=found, cure=cure, error=error
    )


def from_error(subject: str, error: TileManagerError) -> CheckResult:
    """Return the result of a check that ended with an error."""
    return CheckResult(
        subject=subject, verdict=CheckStatus.FAILED, found=str(error), cure=None, error=error
    )


def report_provider_error(error: SatelliteProviderError, setting: str) -> CheckResult:
    """Report that the provider cannot be used; ``setting`` has its address."""
    cure = f"check the link, and {setting}"
    if error.fault is ProviderFault.INSECURE:
        cure = "check the provider's certificate, c11.ca_file, and this machine's clock"
    return failed("provider", str(error), cure, error=error)


def skipped(subject: str, needed: str) -> CheckResult:
    return CheckResult(subject=subject, verdict=CheckStatus.NOT_SEEN, found=f"needs the {needed}")


def check_python(version: tuple[int, int, int]) -> CheckResult:
    shown = ".".join(map(str, version))
    if version[:2] < PYTHON_MIN:
        return failed("Python", shown, "use Python 3.11 or later")
    return ok("Python", shown)


def describe_weaknesses(settings: ServerSettings) -> Iterator[str]:
    """Yield what is wrong with a server for every command that uses it: one line each."""
    for check in check_server_settings(settings):
        if check.verdict is CheckStatus.WARNING:
            yield f"{check.found}; {check.cure}"
    try:
        settings.check_writable()
    except DatabaseError as error:
        yield f"{error.problem}: only commands that change nothing work; {error.remedy}"


def check_server_settings(settings: ServerSettings) -> Iterator[CheckResult]:
    """Check that a commit survives a power cut, and report a pooler."""
    subject = "durability"
    weak = {"fsync": settings.fsync, "full_page_writes": settings.full_page_writes}
    off = [name for name, is_on in weak.items() if not is_on]
    for name in off:
        yield warning(
            subject,
            f"{name} is off on the server: a power cut can lose or damage the database",
            f"set {name} to on, unless the data may be lost",
        )
    if not off and settings.synchronous_commit:
        yield ok(subject, "each commit waits for the server's disk")
    elif not off:
        yield ok(subject, "synchronous_commit is off on the server; our transactions turn it on")
    if settings.is_pooled:
        yield ok("pooler", "found; statements are not prepared")


def check_notifications(settings: ServerSettings, *, arrives: bool | None) -> Iterator[CheckResult]:
    """Check that workers are notified of new runs; ``arrives`` is ``None`` if it was not tried."""
    subject = "notifications"
    if arrives:
        yield ok(subject, "arrive through database_listen_url; workers start new runs at once")
    elif arrives is not None:
        yield warning(
            subject,
            "none arrives through database_listen_url: workers poll for runs",
            "set it to the address of the server itself, not of a pooler or a replica, with the"
            " same database",
        )
    elif settings.is_pooled:
        yield ok(subject, "a pooler loses them: workers poll; database_listen_url avoids it")


def check_alerts(raised: Sequence[AlertChanged]) -> Iterator[CheckResult]:
    """Check that no category is retried more often than its alert threshold allows."""
    if not raised:
        yield ok("alerts", "none")
    for alert in raised:
        limit = alert.threshold_per_minute
        allowed = "the limit was removed" if limit is None else f"limit {limit:g} per minute"
        yield warning(
            "alerts",
            f"{alert.retry_category}: {alert.retries} retries in {alert.window_seconds:g} s,"
            f" {allowed}; raised {format_utc(alert.timestamp)}",
            Remedy.SHOW_AUDIT_STATS,
        )


def check_outboxes(waiting: Sequence[str]) -> Iterator[CheckResult]:
    """Check that no audit event waits for its sink."""
    if not waiting:
        yield ok("audit log", "no event waits for delivery")
    for outbox in waiting:
        yield warning(
            "audit log",
            f"not delivered: {outbox}",
            "make the sink available; the next command or worker delivers them",
        )


def check_opentelemetry(*, has_sdk: bool) -> CheckResult:
    """Check that spans and metrics are exported: without an SDK in the process, they are lost."""
    if has_sdk:
        return ok("telemetry", "OpenTelemetry SDK found")
    return warning(
        "telemetry",
        "no OpenTelemetry SDK in this process: spans and metrics are discarded",
        "start tileferry with opentelemetry-instrument",
    )


def check_disk(free_bytes: int, reserve_bytes: int, cache_bytes_left: int) -> CheckResult:
    """Check the space for tiles: free space beyond the reserve, and the rest of the budget."""
    found = (
        f"{format_bytes(free_bytes)} free, and {format_bytes(reserve_bytes)} must stay free; "
        f"the budget leaves {format_bytes(max(0, cache_bytes_left))}"
    )
    if free_bytes <= reserve_bytes:
        return failed(
            "disk",
            found,
            "free some space, set c11.cache_root to another disk, or lower "
            "c6.free_space_reserve_bytes",
        )
    if cache_bytes_left <= 0:
        return warning(
            "disk", found, "downloads will evict older tiles; raise c6.budget_bytes to keep them"
        )
    return ok("disk", found)


def check_binding(fit: CacheFit) -> CheckResult:
    """Report the database's binding. A database of another cache fails before this check."""
    found = {
        CacheFit.BOUND: "belongs to this cache",
        CacheFit.FREE: "bound to this cache by the first download",
    }
    return ok("cache's database", found[fit])


def check_clock(subject: str, ours: datetime, theirs: datetime) -> CheckResult:
    """Compare this machine's clock with another one."""
    skew = ours - theirs
    seconds = abs(skew).total_seconds()
    if abs(skew) <= SKEW_MAX:
        return ok(subject, "agrees" if seconds < 1 else f"agrees within {seconds:.0f} s")
    side = "ahead of" if skew > timedelta() else "behind"
    return warning(
        subject,
        f"this machine is {seconds:.0f} s {side} it",
        "set the clock (timedatectl set-ntp true); signatures and ages of tiles depend on it",
    )


def check_certificate(expires_at: datetime | None, now: datetime) -> CheckResult:
    """Check the remaining lifetime of the provider's certificate, which is otherwise valid."""
    subject = "certificate"
    if expires_at is None:
        return ok(subject, "none: plain http to this machine")
    left = expires_at - now
    found = f"valid until {expires_at.astimezone(UTC):%Y-%m-%d}, {left.days} days"
    if left < CERTIFICATE_LEFT_MIN:
        return warning(subject, found, "ask the provider to renew it before the next flight")
    return ok(subject, found)


def check_provider_status(status: int, server: str, key_origin: str) -> CheckResult:
    """Judge the provider's response to a small request with our key."""
    subject, server = "provider", printable(server)
    if status == _HTTP_OK:
        return ok(subject, f"{server} is reachable; API key accepted")
    fault = fault_from_status(status)
    error = SatelliteProviderError(reason="refused", url=server, status=status, fault=fault)
    if fault is ProviderFault.UNAUTHORIZED:
        return report_rejected_key(error, server, key_origin)
    match classify_fault(fault):
        case RateLimited():
            return warning(
                subject, f"{server} limits our rate ({status})", "wait before a download"
            )
        case Retryable():
            return warning(subject, f"{server} reports an error ({status})", "try again later")
        case _:
            found = f"{server} answered {status} to a listing"
            cure = "check that c11.satellite_provider_url is the address of a satellite-provider"
            return failed(subject, found, cure, error=error)


def report_invalid_listing(error: SatelliteProviderError) -> CheckResult:
    """Report a response that is not a listing, such as a login page."""
    cure = "check that c11.satellite_provider_url is the provider's address"
    return failed("provider", str(error), cure, error=error)


def report_rejected_key(error: SatelliteProviderError, server: str, key_origin: str) -> CheckResult:
    """Report that the provider rejected the key, and where the key came from."""
    found = f"{printable(server)} rejects the API key ({error.status})"
    cure = f"check the key, which came from {printable(key_origin)}"
    return failed("provider", found, cure, error=error)


def report_absent_tiles(server: str, tiles: Sequence[TileId], setting: str) -> CheckResult:
    """Report that a tile server has none of the requested tiles."""
    names = ", ".join(f"{tile.zoom}/{tile.x}/{tile.y}" for tile in tiles)
    found = f"{printable(server)} is reachable, but does not have the tile {names}"
    section = setting.partition(".")[0]
    cure = f"check {setting}; if it is right, name a tile of the server in {section}.sample_tile"
    return failed("provider", found, cure)


def check_log(file: str, problem: str | None) -> CheckResult:
    """Check whether the log file is writable. Commands work without it, but leave no records."""
    if problem is None:
        return ok("log", file)
    return warning(
        "log",
        f"{file} cannot be written ({problem}); commands continue without it",
        "set log.file to a file in a writable folder",
    )


def check_variables(unknown: Mapping[str, str | None]) -> Iterator[CheckResult]:
    """Yield a failure for each variable that is not a setting, with the likely name if known."""
    for name, meant in unknown.items():
        cure = Remedy.LIST_SETTINGS if meant is None else f"did you mean {meant}?"
        error = InvalidValueError(
            field=printable(name), value=None, problem="is not a setting", remedy=cure
        )
        yield failed("environment", f"{error.field} {error.problem}", cure, error=error)


def check_mode(subject: str, mode: int, cure: str) -> CheckResult:
    """Check that only the owner can access a folder."""
    if mode & 0o077:
        return warning(subject, f"accessible to other users (mode {mode:04o})", cure)
    return ok(subject, f"accessible to its owner only (mode {mode:04o})")
