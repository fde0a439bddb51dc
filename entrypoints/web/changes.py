"""Changes with a preview: first a page with the exact effect, then the confirmed change.

A page declares a change by two functions. The first returns its effect and changes nothing; the
second applies it. The effect is hashed into the form of the preview, and computed again before
it is applied: if anything has changed meanwhile, the new effect is shown instead.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256

from attrs import field, frozen
from starlette.responses import Response

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import ConfirmationNeededError, InvalidValueError
from tileferry.domain.partitions import LARGE_RANGE
from tileferry.domain.partitions.retry_rules import check_confirmation
from tileferry.domain.validation import is_unicode
from tileferry.entrypoints.web.site import PageRequest, PageRoute

REASON_CHARS_MAX = 500
_OWN_FIELDS = ("reason", "confirmed_count", "plan_hash", "choice")


@frozen(kw_only=True)
class Preview:
    """The exact effect of a change."""

    title: str
    """Such as "Retry 3 partitions"."""
    count: int
    """How many things it affects; for many, the number must be typed."""
    noun: str
    """What it affects, in the singular."""
    plan: JsonValue
    """Everything that the effect depends on; it is hashed."""
    facts: Mapping[str, object] = field(factory=dict)
    """What it does, by names; shown above the table."""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    remarks: Sequence[str] = ()
    note: str = field(default="", kw_only=True)
    """Shown above the table."""
    choices: Mapping[str, str] = field(factory=dict)
    """Ways to make the change: the values of ``choice`` in the form, and the texts of their
    buttons. Without any, there is one button."""

    @property
    def plan_hash(self) -> str:
        return sha256(canonical_json(self.plan, field="plan")).hexdigest()

    @property
    def needs_count(self) -> bool:
        return self.count >= LARGE_RANGE


@frozen(kw_only=True)
class Confirmation:
    """Who confirmed a change, why, and which number they typed."""

    by: str
    reason: str
    confirmed: int | None


@frozen(kw_only=True)
class Change:
    """A change that a page offers: a POST to ``path`` shows its preview."""

    path: str
    """Such as ``/flights/pin``; ``/flights/pin/apply`` applies it."""
    back: str
    """The page to return to."""
    find_after: Callable[[PageRequest], str] | None = None
    """Returns the page to go to after the change, if it is another one."""
    preview: Callable[[PageRequest], Preview]
    """Returns the effect of the fields of a form; changes nothing."""
    apply: Callable[[PageRequest, Confirmation], str]
    """Makes the change, and returns what it did, as one sentence."""

    @property
    def routes(self) -> Sequence[PageRoute]:
        return (
            PageRoute(self.path, partial(_show_preview, self), "POST"),
            PageRoute(f"{self.path}/apply", partial(_apply, self), "POST"),
        )


def _show_preview(
    change: Change, request: PageRequest, *, problem: str = "", status: int = 200
) -> Response:
    preview = change.preview(request)
    carried = {name: value for name, value in request.form.items() if name not in _OWN_FIELDS}
    return request.render(
        "preview.html",
        {
            "title": preview.title,
            "change": change,
            "preview": preview,
            "carried": carried,
            "problem": problem,
            "reason": request.form.get("reason", ""),
        },
        status_code=status,
    )


def _apply(change: Change, request: PageRequest) -> Response:
    preview = change.preview(request)
    if request.form.get("plan_hash") != preview.plan_hash:
        problem = "The situation has changed since the preview. This is the new effect."
        return _show_preview(change, request, problem=problem, status=409)
    try:
        confirmation = _read_confirmation(request)
        check_confirmation(preview.count, confirmation.confirmed, what=preview.noun)
    except ConfirmationNeededError as error:
        problem = f"Nothing was changed: {error.summary}."
        return _show_preview(change, request, problem=problem, status=409)
    except InvalidValueError as error:
        return _show_preview(change, request, problem=error.summary, status=400)
    flash = change.apply(request, confirmation)
    after = change.back if change.find_after is None else change.find_after(request)
    return request.redirect(after, flash=flash)


def _read_confirmation(request: PageRequest) -> Confirmation:
    reason = request.form.get("reason", "").strip()
    if not reason or len(reason) > REASON_CHARS_MAX or not is_unicode(reason):
        raise InvalidValueError(
            field="reason", value=reason, problem=f"must have 1 to {REASON_CHARS_MAX} characters"
        )
    typed = request.form.get("confirmed_count", "").strip().replace(",", "")
    is_number = typed.isascii() and typed.isdecimal() and len(typed) <= len(str(2**63))
    return Confirmation(
        by=request.session.actor, reason=reason, confirmed=int(typed) if is_number else None
    )
