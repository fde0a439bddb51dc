"""What is well with an installation, and what is not: facts in, a finding with its cure out."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from attrs import frozen

from tileferry.domain.errors import SatelliteProviderError, TileManagerError
from tileferry.domain.retry import RateLimited, Retryable
from tileferry.domain.text import in_bytes, printable
from tileferry.domain.tiles import ProviderFault, class_of_fault, fault_of_status
from tileferry.domain.tiles.bound_cache import CacheFit

PYTHON_MIN = (3, 11)
SKEW_MAX = timedelta(seconds=60)
"""Providers refuse signatures whose time is further off than they like; five minutes is usual."""
CERTIFICATE_LEFT_MIN = timedelta(days=14)
_OK = 200


class Verdict(StrEnum):
    """How one look ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_SEEN = "not_seen"
    """What it depends on had failed."""


@frozen(kw_only=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    found: str
    cure: str | None = None
    error: TileManagerError | None = None
    """What was met, where it was an error."""


def well(subject: str, found: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(subject=subject, verdict=Verdict.OK, found=found)


def doubtful(subject: str, found: str, cure: str) -> Finding:
    """Return that something may become a problem."""
    return Finding(subject=subject, verdict=Verdict.WARNING, found=found, cure=cure)


def ill(subject: str, found: str, cure: str, *, error: TileManagerError | None = None) -> Finding:
    """Return that something does not work."""
    return Finding(subject=subject, verdict=Verdict.FAILED, found=found, cure=cure, error=error)


def met(subject: str, error: TileManagerError) -> Finding:
    """Return that a look ended with an error; most say by themselves what to do."""
    fault = error.fault if isinstance(error, SatelliteProviderError) else None
    cure = None
    if fault is ProviderFault.INSECURE:
        cure = "check the provider's certificate, c11.ca_file, and this machine's clock"
    elif fault is not None:
        cure = "check the link, and c11.satellite_provider_url"
    return Finding(
        subject=subject, verdict=Verdict.FAILED, found=str(error), cure=cure, error=error
    )


def not_seen(subject: str, needed: str) -> Finding:
    """Return that there was nothing to look at."""
    return Finding(subject=subject, verdict=Verdict.NOT_SEEN, found=f"needs the {needed}")


def of_python(version: tuple[int, int, int]) -> Finding:
    """Judge the interpreter."""
    shown = ".".join(map(str, version))
    if version[:2] < PYTHON_MIN:
        return ill("Python", shown, "use Python 3.11 or later")
    return well("Python", shown)


def of_disk(free_bytes: int, reserve_bytes: int, cache_bytes_left: int) -> Finding:
    """Judge the space for tiles: what is free beyond the reserve, and what the budget leaves."""
    found = (
        f"{in_bytes(free_bytes)} free, and {in_bytes(reserve_bytes)} must stay free; "
        f"the budget leaves {in_bytes(max(0, cache_bytes_left))}"
    )
    if free_bytes <= reserve_bytes:
        return ill(
            "disk",
            found,
            "free some space, set c11.cache_root to another disk, or lower "
            "c6.free_space_reserve_bytes",
        )
    if cache_bytes_left <= 0:
        return doubtful(
            "disk", found, "downloads will evict older tiles; raise c6.budget_bytes to keep them"
        )
    return well("disk", found)


def of_binding(fit: CacheFit) -> Finding:
    """Judge whether the database is this cache's; one of another cache is an error by itself."""
    found = {
        CacheFit.BOUND: "the one of this cache",
        CacheFit.FREE: "bound to this cache by the first download",
    }
    return well("cache's database", found[fit])


def of_clock(subject: str, ours: datetime, theirs: datetime) -> Finding:
    """Judge this machine's clock by another one."""
    skew = ours - theirs
    seconds = abs(skew).total_seconds()
    if abs(skew) <= SKEW_MAX:
        return well(subject, "agrees" if seconds < 1 else f"agrees within {seconds:.0f} s")
    side = "ahead of" if skew > timedelta() else "behind"
    return doubtful(
        subject,
        f"this machine is {seconds:.0f} s {side} it",
        "set the clock (timedatectl set-ntp true); signatures and ages of tiles depend on it",
    )


def of_certificate(expires_at: datetime | None, now: datetime) -> Finding:
    """Judge the provider's certificate, which was found to be valid."""
    subject = "certificate"
    if expires_at is None:
        return well(subject, "none: plain http to this machine")
    left = expires_at - now
    found = f"valid until {expires_at.astimezone(UTC):%Y-%m-%d}, {left.days} days"
    if left < CERTIFICATE_LEFT_MIN:
        return doubtful(subject, found, "ask the provider to renew it before the next flight")
    return well(subject, found)


def of_answer(status: int, server: str, key_origin: str) -> Finding:
    """Judge how the provider answered a small question that carried our key."""
    subject, server = "provider", printable(server)
    if status == _OK:
        return well(subject, f"{server} answers and takes the key")
    fault = fault_of_status(status)
    error = SatelliteProviderError(reason="refused", url=server, status=status, fault=fault)
    if fault is ProviderFault.UNAUTHORIZED:
        return of_refused_key(error, server, key_origin)
    match class_of_fault(fault):
        case RateLimited():
            return doubtful(subject, f"{server} throttles us ({status})", "wait before a download")
        case Retryable():
            return doubtful(subject, f"{server} has trouble ({status})", "try again later")
        case _:
            found = f"{server} answered {status} to a listing"
            cure = "check that c11.satellite_provider_url is the address of a satellite-provider"
            return ill(subject, found, cure, error=error)


def of_no_listing(error: SatelliteProviderError) -> Finding:
    """Return that who answered said something else than a provider does, such as "log in here"."""
    cure = "is c11.satellite_provider_url the provider's address?"
    return ill("provider", str(error), cure, error=error)


def of_refused_key(error: SatelliteProviderError, server: str, key_origin: str) -> Finding:
    """Return that the provider did not take the key, which came from a variable or a file."""
    found = f"{printable(server)} refuses the key ({error.status})"
    cure = f"check the key, which came from {printable(key_origin)}"
    return ill("provider", found, cure, error=error)


def of_log(file: str, problem: str | None) -> Finding:
    """Judge where records go: without a log commands go on, and nobody can look back."""
    if problem is None:
        return well("log", file)
    return doubtful(
        "log",
        f"{file} cannot be written ({problem}); commands go on without it",
        "set log.file to a file in a folder that can be made and written",
    )


def of_variables(unknown: Mapping[str, str | None]) -> Iterator[Finding]:
    """Judge variables that look like settings and are none, each with what was meant, if known."""
    for name, meant in unknown.items():
        cure = "unset it; `tileferry config show` lists all settings"
        yield doubtful(
            "environment",
            f"{printable(name)} is no setting, and is ignored",
            cure if meant is None else f"did you mean {meant}?",
        )


def of_mode(subject: str, mode: int, cure: str) -> Finding:
    """Judge whether a folder is for its owner alone."""
    if mode & 0o077:
        return doubtful(subject, f"others may look into it (mode {mode:04o})", cure)
    return well(subject, f"for its owner alone (mode {mode:04o})")
