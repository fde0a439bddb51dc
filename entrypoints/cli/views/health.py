"""An installation's findings, for people."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from tileferry.domain.health import Finding, Verdict

_STYLES = {
    Verdict.OK: "green",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.NOT_SEEN: "dim",
}
_VERDICT_CHARS = 9
_SUBJECT_CHARS = 17


def finding_lines(finding: Finding) -> Iterator[Text]:
    """Yield a line for what was found, and one for what to do about it."""
    verdict = finding.verdict.replace("_", " ")
    yield Text.assemble(
        (f"{verdict:<{_VERDICT_CHARS}}", _STYLES[finding.verdict]),
        f"{finding.subject:<{_SUBJECT_CHARS}}",
        finding.found,
    )
    if finding.cure is not None:
        yield Text(f"{'':<{_VERDICT_CHARS + _SUBJECT_CHARS}}→ {finding.cure}")


def finding_grid(finding: Finding) -> Table:
    """Return the same for a terminal, folded between words and below where it began."""
    grid = Table.grid()
    grid.add_column(width=_VERDICT_CHARS, style=_STYLES[finding.verdict])
    grid.add_column(width=_SUBJECT_CHARS)
    grid.add_column(overflow="fold")
    grid.add_row(finding.verdict.replace("_", " "), finding.subject, Text(finding.found))
    if finding.cure is not None:
        grid.add_row("", "", Text(f"→ {finding.cure}"))
    return grid


def closing_line(findings: Sequence[Finding]) -> str:
    """Sum it up."""
    count = Counter(finding.verdict for finding in findings)
    if count[Verdict.FAILED]:
        return f"{count[Verdict.FAILED]} failed: mend the first one, then run it again."
    if count[Verdict.WARNING]:
        return f"Fit for work, with {count[Verdict.WARNING]} to look at."
    return "Fit for work."
