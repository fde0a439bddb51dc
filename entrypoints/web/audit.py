"""Audit: the tail of the log with filters, its verification, and the replay of decisions."""

from collections.abc import Collection
from functools import partial

from starlette.responses import Response

from tileferry.application.audit_reader import AuditVerification, DecodedEntry
from tileferry.domain.audit import EVENT_KINDS, AuditEvent
from tileferry.domain.errors import InvalidValueError, NotFoundError, Remedy
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.cli.audit_entries import (
    describe_entry,
    describe_replay,
    describe_steps,
    shorten_category,
)
from tileferry.entrypoints.cli.audit_view import describe_verification, format_head
from tileferry.entrypoints.web.filters import encode_filters, read_text
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute
from tileferry.entrypoints.web.snapshots import Snapshot

_PATH = "/audit"
_ROWS_MAX = 50
_SCANNED_MAX = 1_000
"""Entries that a page reads to find matching ones; the next page continues after them."""
_FILTERS = ("category", "event")
_REPLAYED_MAX = 50
_COLOURS = {
    "yellow": "warning",
    "bold red": "failed",
    "green": "ok",
    "cyan": "active",
    "blue": "active",
}


class LogVerification(Snapshot[AuditVerification]):
    """The verification of the whole log, which reads every entry."""


def show_audit(request: PageRequest) -> Response:
    about = read_text(request.query, "about")
    if about is not None:
        return request.redirect(f"{_PATH}/replay?{encode_filters({}, (), about=about)}")
    return request.render(
        "audit.html",
        {
            "title": "Audit",
            "categories": {one.value: shorten_category(one.value) for one in RetryCategory},
            "events": {one: one.replace("_", " ") for one in EVENT_KINDS},
            "filters": {name: request.query.get(name, "") for name in _FILTERS},
            "live_query": encode_filters(request.query, (*_FILTERS, "before")),
            **_build_tail(request),
        },
    )


def render_tail(request: PageRequest) -> str:
    return request.render_text("_audit.html", _build_tail(request))


def _build_tail(request: PageRequest) -> dict[str, object]:
    category, event_type = (request.query.get(name) or None for name in _FILTERS)
    _check_choice("category", category, [one.value for one in RetryCategory])
    _check_choice("event", event_type, EVENT_KINDS)

    def matches(event: AuditEvent) -> bool:
        code = getattr(event, "retry_category", "")
        return event_type in {None, event.event_type} and category in {None, code}

    terms = [term for term in (category, event_type) if term is not None]
    found, reached = request.installation.audit_reader.read_before(
        _read_sequence(request, "before"),
        _ROWS_MAX,
        matches if terms else None,
        holding=terms,
        scan_max=_SCANNED_MAX,
    )
    older = encode_filters(request.query, _FILTERS, before=str(reached))
    return {
        "entries": [_describe(read) for read in reversed(found)],
        "first": encode_filters(request.query, _FILTERS) if request.query.get("before") else None,
        "next": older if reached > 1 else None,
        "is_filtered": bool(terms),
    }


def _describe(read: DecodedEntry) -> dict[str, object]:
    line = describe_entry(read)
    return {
        "sequence": read.entry.sequence,
        "at": None if read.event is None else read.event.timestamp,
        "line": line,
        "colour": _COLOURS.get(line.style, "skipped"),
        "has_decision": read.record is not None,
    }


def _check_choice(name: str, value: str | None, known: Collection[str]) -> None:
    if value is not None and value not in known:
        raise InvalidValueError(field=name, value=value, problem="is not known")


def _read_sequence(request: PageRequest, name: str) -> int | None:
    value = request.query.get(name, "")
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= len(str(2**62))):
        raise InvalidValueError(field=name, value=value, problem="is not a sequence number")
    return int(value)


# replay


def show_replay(request: PageRequest) -> Response:
    about = read_text(request.query, "about")
    if about is None:
        raise InvalidValueError(field="about", value="", problem="is missing")
    entries = list(request.installation.audit_reader.find_about(about))
    if not entries:
        raise NotFoundError(what="audit entry", name=about, remedy=Remedy.TAIL_AUDIT_LOG)
    shown = entries[-_REPLAYED_MAX:]
    is_same, sentences = describe_replay(shown)
    return request.render(
        "audit_replay.html",
        {
            "title": "Replay",
            "about": about,
            "entries": [{**_describe(read), "steps": describe_steps(read)} for read in shown],
            "left_out": len(entries) - len(shown),
            "colour": "ok" if is_same else "failed",
            "sentences": sentences,
        },
    )


# verification


def _get_verification(request: PageRequest) -> LogVerification:
    verify = partial(_verify, request)
    return request.site.get_state(LogVerification, lambda: LogVerification(verify))


def _verify(request: PageRequest) -> AuditVerification:
    return request.installation.audit_reader.verify()


def show_verification(request: PageRequest) -> Response:
    return request.render("audit_verify.html", {"title": "Verify", **_build_verification(request)})


def render_verification(request: PageRequest) -> str:
    return request.render_text("_audit_verify.html", _build_verification(request))


def _build_verification(request: PageRequest) -> dict[str, object]:
    snapshot = _get_verification(request)
    result = snapshot.get()
    return {
        "facts": None if result is None else describe_verification(result),
        "is_sound": result is not None and result.intact and result.complete,
        "head": None if result is None else format_head(result.chain.head),
        "checked_at": snapshot.taken_at,
        "problem": snapshot.problem,
    }


PAGE = Page(
    title="Audit",
    path=_PATH,
    routes=(
        PageRoute(_PATH, show_audit),
        PageRoute(f"{_PATH}/replay", show_replay),
        PageRoute(f"{_PATH}/verify", show_verification),
    ),
    feeds=(
        Feed(name="audit", render=render_tail),
        Feed(name="audit-verify", render=render_verification),
    ),
)
