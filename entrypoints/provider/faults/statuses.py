"""Answers with a status that is no good news."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from tileferry.entrypoints.provider.answers import Answer, problem
from tileferry.entrypoints.provider.faults.fault import ALL_CALLS, Call, Options, RequestFault

_ELSEWHERE = "https://elsewhere.invalid"
"""A host that cannot exist (RFC 6761): whoever follows, fails."""


def _rate_limited(_answer: Answer, options: Options) -> Answer:
    return problem(
        429, "rate_limited", "too many requests", Retry_After=str(options["retry_after"])
    )


def _rate_limited_until(_answer: Answer, options: Options) -> Answer:
    until = datetime.now(UTC) + timedelta(seconds=options["retry_after"])
    when = format_datetime(until, usegmt=True)
    return problem(429, "rate_limited", "too many requests", Retry_After=when)


def _rate_limited_silently(_answer: Answer, _options: Options) -> Answer:
    return problem(429, "rate_limited", "too many requests")


def _failed(status: int) -> RequestFault:
    def spoil(_answer: Answer, options: Options) -> Answer:
        after = options["retry_after"]
        headers = {} if after is None else {"Retry-After": str(after)}
        return problem(status, "server_error", "the provider is not well", **headers)

    return RequestFault(
        name=str(status),
        says=f"answer {status}; retry_after may add the header",
        calls=ALL_CALLS,
        options={"retry_after": None},
        spoil=spoil,
        acts=False,
    )


def _refused(status: int, code: str) -> RequestFault:
    return RequestFault(
        name=str(status),
        says=f"answer {status}, as if the key were not good",
        calls=ALL_CALLS,
        spoil=lambda _answer, _options: problem(status, code, "the key is refused"),
        acts=False,
    )


def _redirected(_answer: Answer, options: Options) -> Answer:
    return Answer(status=options["status"], headers={"Location": f"{options['to']}/elsewhere"})


STATUS_FAULTS = (
    RequestFault(
        name="429",
        says="answer 429 with Retry-After in seconds (retry_after, any text)",
        calls=ALL_CALLS,
        options={"retry_after": 1},
        spoil=_rate_limited,
        acts=False,
    ),
    RequestFault(
        name="429-date",
        says="answer 429 with Retry-After as a date, retry_after seconds ahead",
        calls=ALL_CALLS,
        options={"retry_after": 2},
        spoil=_rate_limited_until,
        acts=False,
    ),
    RequestFault(
        name="429-bare",
        says="answer 429 without Retry-After",
        calls=ALL_CALLS,
        spoil=_rate_limited_silently,
        acts=False,
    ),
    *(_failed(status) for status in (500, 502, 503, 504)),
    _refused(401, "unauthorized"),
    _refused(403, "forbidden"),
    RequestFault(
        name="404",
        says="answer 404 for a tile that was listed",
        calls=frozenset({Call.TILE}),
        lasting=True,
        spoil=lambda _answer, _options: problem(404, "no_such_tile", "there is no such tile"),
        acts=False,
    ),
    RequestFault(
        name="redirect",
        says="send the client to another host (to, status)",
        calls=ALL_CALLS,
        options={"to": _ELSEWHERE, "status": 307},
        spoil=_redirected,
        acts=False,
    ),
)
