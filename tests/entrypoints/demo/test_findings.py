"""What the demo makes of the audit log."""

from typing import Any

from tileferry.entrypoints.demo.findings import find_instructive_entry, summarize_reason


def test_reason_is_shortened() -> None:
    failed = "provider: service unavailable, HTTP 503, at http://x/y, after 1 attempt"
    assert summarize_reason(failed) == "HTTP 503"
    assert (
        summarize_reason("provider: the response broke off, at http://x")
        == "the response broke off"
    )
    assert summarize_reason("3 tiles were rejected: clouds") == "3 tiles were rejected"
    assert len(summarize_reason("x" * 1_000)) == 60


def test_rate_limited_decision_is_preferred_as_example() -> None:
    def entry(sequence: int, message: str, kind: str = "retry_attempt") -> Any:
        return {"sequence": sequence, "event": {"event_type": kind, "exception_message": message}}

    first, second = entry(2, "HTTP 503"), entry(3, "too many requests, HTTP 429")
    assert find_instructive_entry({"entries": [entry(1, "", "state_change"), first, second]}) == 3
    assert find_instructive_entry({"entries": [first]}) == 2
    assert find_instructive_entry({"entries": []}) is None
