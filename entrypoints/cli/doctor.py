"""``tileferry doctor``: check the installation."""

from collections import Counter
from typing import TYPE_CHECKING

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from tileferry.domain.health import CheckResult, CheckStatus

app = declare_command()
_VERDICT_CHARS = 9
_SUBJECT_CHARS = 17


@app.command("doctor", epilog=format_examples("tileferry doctor", "tileferry doctor --json"))
def doctor_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Check this installation, and say how to fix what is wrong.

    Checks Python, the configuration, misspelt environment variables, the log, the database, its
    durability and schema, NATS and telemetry if configured, the cache folder, its disk and lock,
    the clock, the API key, and the provider and its certificate. Read-only, except that it starts
    (or creates) the embedded database.

    Exit codes: 0 no check failed (warnings are not failures); otherwise that of the first
    failure: 2 a setting, 5 the provider, 6 API key or certificate, 7 the database or the disk.
    """
    from tileferry.domain.health import CheckStatus
    from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.health import check_health

    findings: list[CheckResult] = []
    for finding in check_health(config):
        findings.append(finding)
        if not json:
            _print_finding(finding)
    if json:
        print_json("tileferry.doctor.v1", {"findings": [*map(_finding_to_json, findings)]})
    else:
        stdout.print(f"\n{summarize_findings(findings)}")
    failed = next((one for one in findings if one.verdict is CheckStatus.FAILED), None)
    if failed is None:
        raise typer.Exit(ExitCode.DONE)
    raise typer.Exit(ExitCode.FATAL if failed.error is None else get_exit_code(failed.error))


def _print_finding(finding: "CheckResult") -> None:
    """Print the finding and its remedy, one line each; on a terminal they are wrapped."""
    from rich.text import Text

    from tileferry.entrypoints.cli.output import stdout
    from tileferry.entrypoints.cli.remedies import word_remedy

    if stdout.is_terminal:
        stdout.print(build_finding_grid(finding))
        return
    verdict = f"{_word_verdict(finding):<{_VERDICT_CHARS}}"
    line = Text.assemble(
        (verdict, _get_style(finding.verdict)),
        f"{finding.subject:<{_SUBJECT_CHARS}}",
        _word_found(finding),
    )
    stdout.print(line, soft_wrap=True)
    if finding.cure is not None:
        remedy = Text(f"{'':<{_VERDICT_CHARS + _SUBJECT_CHARS}}→ {word_remedy(finding.cure)}")
        stdout.print(remedy, soft_wrap=True)


def _word_found(finding: "CheckResult") -> str:
    from tileferry.entrypoints.cli.remedies import describe_error

    error = finding.error
    if error is None or finding.found != str(error):
        return finding.found
    return describe_error(error)


def build_finding_grid(finding: "CheckResult") -> "Table":
    """Return the finding for a terminal, wrapped between words with a hanging indent."""
    from rich.table import Table
    from rich.text import Text

    from tileferry.entrypoints.cli.remedies import word_remedy

    grid = Table.grid()
    grid.add_column(width=_VERDICT_CHARS, style=_get_style(finding.verdict))
    grid.add_column(width=_SUBJECT_CHARS)
    grid.add_column(overflow="fold")
    grid.add_row(_word_verdict(finding), finding.subject, Text(_word_found(finding)))
    if finding.cure is not None:
        grid.add_row("", "", Text(f"→ {word_remedy(finding.cure)}"))
    return grid


def _word_verdict(finding: "CheckResult") -> str:
    from tileferry.domain.health import CheckStatus

    return "skipped" if finding.verdict is CheckStatus.NOT_SEEN else finding.verdict.value


def _get_style(verdict: "CheckStatus") -> str:
    from tileferry.domain.health import CheckStatus

    styles = {
        CheckStatus.OK: "green",
        CheckStatus.WARNING: "yellow",
        CheckStatus.FAILED: "bold red",
        CheckStatus.NOT_SEEN: "dim",
    }
    return styles[verdict]


def _finding_to_json(finding: "CheckResult") -> dict[str, str | None]:
    found, cure = describe_finding(finding)
    return {
        "subject": finding.subject,
        "verdict": finding.verdict,
        "found": found,
        "cure": cure,
    }


def describe_finding(finding: "CheckResult") -> tuple[str, str | None]:
    """Return what was found, and what to do about it, if anything."""
    from tileferry.entrypoints.cli.remedies import word_remedy

    return _word_found(finding), None if finding.cure is None else word_remedy(finding.cure)


def summarize_findings(findings: "Sequence[CheckResult]") -> str:
    """Return the result of all checks as one sentence."""
    from tileferry.domain.health import CheckStatus

    count = Counter(finding.verdict for finding in findings)
    if count[CheckStatus.FAILED]:
        return f"{count[CheckStatus.FAILED]} failed. Fix the first one, then re-run."
    if count[CheckStatus.WARNING]:
        warnings = count[CheckStatus.WARNING]
        return f"No check failed; {warnings} warning{'' if warnings == 1 else 's'}."
    return "All checks passed."
