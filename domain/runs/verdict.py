"""What the validator says about the raw partition, or the result, that a run produced."""

from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.runs.run import RunId
from tileferry.domain.validation import as_tuple, each, instance, name, text


class VerdictOutcome(StrEnum):
    """How a run's work was judged."""

    PASSED = "passed"
    NEEDS_REVIEW = "needs_review"
    """Good enough to be read, and a human should look."""
    FAILED = "failed"


@frozen(kw_only=True)
class Verdict:
    """The judgement on one run; anything but a clean pass says why."""

    run_id: RunId = field(validator=name)
    outcome: VerdictOutcome = field(validator=instance(VerdictOutcome))
    reasons: tuple[str, ...] = field(default=(), converter=as_tuple, validator=each(text))

    def __attrs_post_init__(self) -> None:
        clean = self.outcome is VerdictOutcome.PASSED
        if clean and self.reasons:
            problem, remedy = "must be empty for a clean pass", "a pass with remarks needs_review"
        elif not clean and not self.reasons:
            problem, remedy = f"must say why the run is {self.outcome}", ""
        else:
            return
        raise InvalidValueError(
            field="Verdict.reasons", value=self.reasons, problem=problem, remedy=remedy
        )

    @property
    def explanation(self) -> str | None:
        """The reasons on one line; ``None`` for a clean pass."""
        return "; ".join(self.reasons) or None
