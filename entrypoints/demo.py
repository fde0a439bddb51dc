"""``make demo``: see the product at work."""

from rich import box
from rich.console import Console
from rich.table import Table

from tileferry.domain.retry import (
    DOWNLOAD_POLICY,
    POLICY_MATRIX,
    RUN_POLICY,
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
    simulate,
    upload_policy,
)

SCENES: list[tuple[str, RetryPolicy, list[ErrorClass]]] = [
    ("A tile's GET meets two server errors", DOWNLOAD_POLICY, [Retryable(), Retryable()]),
    (
        "The provider says 429, Retry-After: 30",
        DOWNLOAD_POLICY,
        [RateLimited(retry_after_s=30.0)],
    ),
    ("The provider is down and stays down", DOWNLOAD_POLICY, [Retryable()] * 5),
    ("The provider refuses our key (401)", DOWNLOAD_POLICY, [Final()]),
    ("One poisoned tile in an upload", upload_policy(3, 2.0, 60.0), [Retryable()] * 4),
    ("A queued run loses its network twice", RUN_POLICY, [Retryable(), Retryable()]),
]


def matrix() -> Table:
    """Lay out the retry policy of every category."""
    table = _table("Retry policies: how often, how long between, and for how long in all")
    table.add_column("category", no_wrap=True)
    for heading in ("tries", "first", "longest", "growth", "jitter", "in all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for category in RetryCategory:
        policy = POLICY_MATRIX[category]
        table.add_row(
            category.name,
            str(policy.max_attempts),
            f"{policy.base_delay:g} s",
            f"{policy.max_delay:g} s",
            f"x{policy.backoff_multiplier:g}",
            f"±{policy.jitter_factor:.0%}",
            f"≤ {longest_backoff_s(policy):.1f} s",
        )
    return table


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
    console = Console(highlight=False)
    console.print(matrix())
    for title, policy, errors in SCENES:
        console.print(schedule(title, simulate(policy, errors, key=title)))
    console.print("Simulated by the rules the product runs on; nothing was sent and nobody waited.")


if __name__ == "__main__":
    main()
