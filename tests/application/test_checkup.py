"""An installation is looked at to the end, whatever is met on the way."""

from collections.abc import Callable, Iterable

from tileferry.application.checkup import Check, examined
from tileferry.domain.errors import DatabaseError
from tileferry.domain.health import Finding, Verdict, ill, well


def finds(*findings: Finding) -> Callable[[], Iterable[Finding]]:
    return lambda: findings


def fails() -> Iterable[Finding]:
    yield well("database", "there")
    raise DatabaseError(problem="went away", remedy="start it")


def verdicts(*checks: Check) -> list[tuple[str, Verdict]]:
    return [(finding.subject, finding.verdict) for finding in examined(checks)]


def test_one_look_may_find_several_things() -> None:
    look = finds(well("a", "good"), well("b", "good"))
    assert verdicts(Check(subject="a", look=look)) == [("a", Verdict.OK), ("b", Verdict.OK)]


def test_an_error_is_a_finding_and_what_needs_it_is_not_seen() -> None:
    assert verdicts(
        Check(subject="database", look=fails),
        Check(subject="schema", look=finds(well("schema", "current")), needs="database"),
        Check(subject="disk", look=finds(well("disk", "large")), needs="schema"),
        Check(subject="key", look=finds(well("key", "there")), needs="configuration"),
    ) == [
        ("database", Verdict.OK),
        ("database", Verdict.FAILED),
        ("schema", Verdict.NOT_SEEN),
        ("disk", Verdict.NOT_SEEN),
        ("key", Verdict.OK),
    ]


def test_a_bad_finding_counts_as_an_error_does() -> None:
    assert verdicts(
        Check(subject="key", look=finds(ill("key", "wrong", "mend it"))),
        Check(subject="provider", look=finds(well("provider", "up")), needs="key"),
    ) == [("key", Verdict.FAILED), ("provider", Verdict.NOT_SEEN)]
