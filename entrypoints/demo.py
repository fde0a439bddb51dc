"""``make demo``: see the product at work."""

import io
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    PARTITION_POLICY,
    POLICY_MATRIX,
    RUN_POLICY,
    BackoffKind,
    Decision,
    ErrorClass,
    Final,
    GiveUp,
    RateLimited,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
    RetryReason,
    Simulation,
    longest_backoff_s,
    nominal_delay,
    simulate,
    upload_policy,
)

UPLOAD_POLICY = upload_policy(3, 2.0, 60.0)
OWN_POLICIES = {
    "tile download": DOWNLOAD_POLICY,
    "tile upload": UPLOAD_POLICY,
    "queued run": RUN_POLICY,
    "failed partition": PARTITION_POLICY,
}

SCENES: list[tuple[str, RetryPolicy, list[ErrorClass]]] = [
    ("tile download: two server errors", DOWNLOAD_POLICY, [Retryable(), Retryable()]),
    (
        "tile download: the provider says 429, Retry-After: 30",
        DOWNLOAD_POLICY,
        [RateLimited(retry_after_s=30.0)],
    ),
    ("tile download: the provider is down and stays down", DOWNLOAD_POLICY, [Retryable()] * 5),
    ("tile download: the provider refuses our key (401)", DOWNLOAD_POLICY, [Final()]),
    ("tile upload: one poisoned tile", UPLOAD_POLICY, [Retryable()] * 4),
    ("queued run: the network is gone twice", RUN_POLICY, [Retryable(), Retryable()]),
]


def matrix() -> Table:
    """Lay out every retry policy: of the product's own work, and of each category of calls."""
    table = _table("Retry policies: how often, how long between, and for how long in all")
    table.add_column("what is retried", no_wrap=True)
    for heading in ("tries", "first", "longest", "growth", "jitter", "in all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, policy in OWN_POLICIES.items():
        table.add_row(name, *_figures(policy))
    table.add_section()
    for category in RetryCategory:
        table.add_row(category.name, *_figures(POLICY_MATRIX[category]))
    return table


def _figures(policy: RetryPolicy) -> tuple[str, ...]:
    power = policy.backoff is BackoffKind.POWER
    growth = policy.base_delay if power else policy.backoff_multiplier
    return (
        str(policy.max_attempts),
        f"{nominal_delay(policy, 1):g} s",
        f"{policy.max_delay:g} s",
        f"x{growth:g}",
        f"±{policy.jitter_factor:.0%}" if policy.jitter_enabled else "-",
        f"{longest_backoff_s(policy):.1f} s" if policy.max_attempts > 1 else "-",
    )


def schedule(title: str, simulation: Simulation) -> Table:
    """Lay out what happens to one operation, and when."""
    table = _table(title)
    table.add_column("at", justify="right", width=7)
    table.add_column("attempt", justify="right", width=7)
    table.add_column("error", width=12)
    table.add_column("decision", width=40)
    for step in simulation.failures:
        table.add_row(
            f"{step.started_s:g} s",
            str(step.failure.attempt),
            step.failure.error.code,
            _in_words(step.decision),
        )
    if simulation.succeeds:
        last = simulation.failures[-1]
        next_attempt = last.decision.attempt if isinstance(last.decision, RetryAt) else 1
        table.add_row(f"{simulation.waited_s:g} s", str(next_attempt), "", "[green]done[/green]")
    return table


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _in_words(decision: Decision) -> str:
    if isinstance(decision, GiveUp):
        return f"[red]give up[/red]: {decision.reason.explanation}"
    told = " as it asked, at no charge" if decision.reason is RetryReason.RETRY_AFTER else ""
    return f"wait {decision.delay_s:g} s{told}"


def main() -> None:
    """Show the policies and play the scenes, without waiting."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal or a file of any encoding will do
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    console.print(matrix())
    for title, policy, errors in SCENES:
        console.print(schedule(title, simulate(policy, errors, key=title)))
    console.print("Simulated by the rules the product runs on; nothing was sent and nobody waited.")


if __name__ == "__main__":
    main()
