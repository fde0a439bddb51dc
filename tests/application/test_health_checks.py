"""An installation is looked at to the end, whatever is met on the way."""

from collections.abc import Callable, Iterable

from tileferry.application.health_checks import HealthCheck, run_checks
from tileferry.domain.errors import DatabaseError
from tileferry.domain.health import CheckResult, CheckStatus, failed, ok


def make_check(*findings: CheckResult) -> Callable[[], Iterable[CheckResult]]:
    return lambda: findings


def failing_check() -> Iterable[CheckResult]:
    yield ok("database", "there")
    raise DatabaseError(problem="went away", remedy="start it")


def verdicts(*checks: HealthCheck) -> list[tuple[str, CheckStatus]]:
    return [(finding.subject, finding.verdict) for finding in run_checks(checks)]


def test_one_check_may_return_several_findings() -> None:
    look = make_check(ok("a", "good"), ok("b", "good"))
    assert verdicts(HealthCheck(subject="a", look=look)) == [
        ("a", CheckStatus.OK),
        ("b", CheckStatus.OK),
    ]


def test_failed_check_skips_dependent_checks() -> None:
    assert verdicts(
        HealthCheck(subject="database", look=failing_check),
        HealthCheck(subject="schema", look=make_check(ok("schema", "current")), needs="database"),
        HealthCheck(subject="disk", look=make_check(ok("disk", "large")), needs="schema"),
        HealthCheck(subject="key", look=make_check(ok("key", "there")), needs="configuration"),
    ) == [
        ("database", CheckStatus.OK),
        ("database", CheckStatus.FAILED),
        ("schema", CheckStatus.NOT_SEEN),
        ("disk", CheckStatus.NOT_SEEN),
        ("key", CheckStatus.OK),
    ]


def test_failed_finding_skips_dependent_checks() -> None:
    assert verdicts(
        HealthCheck(subject="key", look=make_check(failed("key", "wrong", "mend it"))),
        HealthCheck(subject="provider", look=make_check(ok("provider", "up")), needs="key"),
    ) == [("key", CheckStatus.FAILED), ("provider", CheckStatus.NOT_SEEN)]
