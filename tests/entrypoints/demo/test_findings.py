"""What the demo makes of the audit log."""

from typing import Any

from tileferry.entrypoints.demo.findings import instructive_entry, reason_of


def test_a_reason_is_told_in_a_few_words() -> None:
    failed = "satellite-provider: service unavailable, HTTP 503, at http://x/y, after 1 attempt"
    assert reason_of(failed) == "HTTP 503"
    assert (
        reason_of("satellite-provider: the answer broke off, at http://x") == "the answer broke off"
    )
    assert reason_of("3 tiles were rejected: clouds") == "3 tiles were rejected"
    assert len(reason_of("x" * 1_000)) == 60


def test_the_decision_to_look_at_is_one_that_the_provider_asked_for() -> None:
    def entry(sequence: int, message: str, kind: str = "retry_attempt") -> Any:
        return {"sequence": sequence, "event": {"event_type": kind, "exception_message": message}}

    first, second = entry(2, "HTTP 503"), entry(3, "too many requests, HTTP 429")
    assert instructive_entry({"entries": [entry(1, "", "state_change"), first, second]}) == 3
    assert instructive_entry({"entries": [first]}) == 2
    assert instructive_entry({"entries": []}) is None
