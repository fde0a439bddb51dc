"""Looking at an installation, one thing after the other."""

from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from tileferry.domain.errors import TileManagerError
from tileferry.domain.health import CheckResult, CheckStatus, from_error, skipped


@frozen(kw_only=True)
class HealthCheck:
    """One look; what it needs must have been found before it."""

    subject: str
    look: Callable[[], Iterable[CheckResult]]
    needs: str | None = None
    """The subject of another check, without which there is nothing to see."""


def run_checks(checks: Iterable[HealthCheck]) -> Iterator[CheckResult]:
    """Yield what is found, as it is found. An error is a finding too, and ends nothing."""
    failed: set[str] = set()
    for check in checks:
        if check.needs is not None and check.needs in failed:
            failed.add(check.subject)
            yield skipped(check.subject, check.needs)
            continue
        try:
            for finding in check.look():
                if finding.verdict is CheckStatus.FAILED:
                    failed.add(check.subject)
                yield finding
        except TileManagerError as error:
            failed.add(check.subject)
            yield from_error(check.subject, error)
