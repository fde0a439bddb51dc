"""``audit verify``: what is sound, and what is not."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tileferry.application.audit_reading import Verification
from tileferry.domain.audit import ChainHead
from tileferry.entrypoints.cli.output import facts


def head_text(head: ChainHead) -> str:
    """Write a head as ``--expect-head`` reads it."""
    return f"{head.sequence}:{head.hash}"


def verification_json(result: Verification) -> dict[str, Any]:
    """Return everything for scripts."""
    problem = result.chain.problem
    return {
        "intact": result.intact,
        "checked": result.chain.checked,
        "head": head_text(result.chain.head),
        "problem": problem,
        "explanation": None if problem is None else problem.explanation,
        "broken_at": result.broken_at,
        "unreadable": result.unreadable,
        "unreadable_entries": [
            {"sequence": read.entry.sequence, "problem": read.problem} for read in result.damage
        ],
        "misfiled_entries": result.misfiled,
    }


def verification_view(result: Verification) -> RenderableType:
    """Lay out what is sound, what is not, and the head to be noted."""
    chain = result.chain
    shown: dict[str, object] = {}
    shown["sound entries"] = str(chain.checked)
    if chain.problem is not None:
        where = "at its end" if result.broken_at is None else f"entry {result.broken_at}"
        shown["broken"] = f"{where}: {chain.problem.explanation}"
    if result.unreadable:
        first = result.damage[0]
        shown["no event in"] = f"{result.unreadable}, first {first.entry.sequence}: {first.problem}"
    if result.misfiled:
        numbers = ", ".join(map(str, result.misfiled))
        shown["misfiled"] = f"{numbers}: found by something that the entry does not say"
    shown["verdict"] = (
        "intact"
        if result.intact
        else "broken: somebody or something changed it; trust only the sound entries"
    )
    # Below the table and in one piece, to be copied.
    head = Text(f"head {head_text(chain.head)}", no_wrap=True, overflow="ignore")
    return Group(facts("Audit log", shown), head, Text("Note the head elsewhere: --expect-head."))
