"""The validator's verdict on the raw partition or result of a run."""

from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.runs.run import RunId
from tileferry.domain.validation import as_tuple, each, instance, name, text


class VerdictOutcome(StrEnum):
    PASSED = "passed"
    NEEDS_REVIEW = "needs_review"
    """Readable, but a human should review it."""
    FAILED = "failed"


@frozen(kw_only=True)
class Verdict:
    """The verdict on one run. Every outcome except a clean pass has reasons."""

    run_id: RunId = field(validator=name)
    outcome: VerdictOutcome = field(validator=instance(VerdictOutcome))
    reasons: tuple[str, ...] = field(default=(), converter=as_tuple, validator=each(text))

    def __attrs_post_init__(self) -> None:
        clean = self.outcome is VerdictOutcome.PASSED
        if clean and self.reasons:
            problem, remedy = (
                "must be empty for a clean pass",
                "use needs_review for a pass with reasons",
            )
        elif not clean and not self.reasons:
            problem, remedy = f"must give the reasons for {self.outcome}", ""
        else:
            return
        raise InvalidValueError(
            field="Verdict.reasons", value=self.reasons, problem=problem, remedy=remedy
        )

    @property
    def explanation(self) -> str | None:
        """The reasons on one line; ``None`` for a clean pass."""
        return "; ".join(self.reasons) or None
