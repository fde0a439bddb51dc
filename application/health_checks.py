"""Run the health checks of an installation in order."""

from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from tileferry.domain.errors import TileManagerError
from tileferry.domain.health import CheckResult, CheckStatus, from_error, skipped


@frozen(kw_only=True)
class HealthCheck:
    """One check; it is skipped if the check that it needs has failed."""

    subject: str
    look: Callable[[], Iterable[CheckResult]]
    needs: str | None = None
    """The subject of another check; if that fails, this one is skipped."""


def run_checks(checks: Iterable[HealthCheck]) -> Iterator[CheckResult]:
    """Yield each result as it is found. An error is a result too and does not stop the checks."""
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
