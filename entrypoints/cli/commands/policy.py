"""``tileferry policy``: the retry policies as set, what they mean, and what others would do."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import SinceOption

app = group("The retry policies: what is set, what it means, and what another would do.")
CategoryOption = Annotated[
    str,
    typer.Option(
        "--category",
        metavar="NAME",
        help="The category, such as API_REQUEST or DOWNLOAD; policy show lists them.",
    ),
]


# show


@app.command("show", epilog=examples("tileferry policy show", "tileferry policy show --json"))
def show_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the policy of every category.

    What the configuration changed is marked with a star.
    """
    from tileferry.entrypoints.cli.running import policy

    policy.shown(config, json=json)


# explain


@app.command(
    "explain",
    epilog=examples(
        "tileferry policy explain --category DOWNLOAD",
        "tileferry policy explain --category API_REQUEST --error 429:30",
    ),
)
def explain_command(
    *,
    category: CategoryOption,
    error: Annotated[
        str,
        typer.Option(
            "--error",
            metavar="ERROR",
            help="The error that stays: timeout, final, or an HTTP status; 429:30 also says when"
            " to come back, in seconds.",
        ),
    ] = "timeout",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what happens when an error does not go away.

    Each wait, the longest time that it can take, and the end.
    """
    from tileferry.entrypoints.cli.running import policy

    policy.explained(config, category=category, error=error, json=json)


# simulate


@app.command(
    "simulate",
    epilog=examples(
        "tileferry policy simulate --category DOWNLOAD --max-attempts 3",
        "tileferry policy simulate --category API_REQUEST --max-attempts 5 --since 7d",
    ),
)
def simulate_command(
    *,
    category: CategoryOption,
    since: SinceOption = "30d",
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Tries in all.")
    ] = None,
    base_delay: Annotated[
        float | None, typer.Option("--base-delay", metavar="SECONDS", help="The first wait.")
    ] = None,
    max_delay: Annotated[
        float | None, typer.Option("--max-delay", metavar="SECONDS", help="The longest wait.")
    ] = None,
    backoff_multiplier: Annotated[
        float | None,
        typer.Option("--backoff-multiplier", metavar="FACTOR", help="How the waits grow."),
    ] = None,
    jitter_factor: Annotated[
        float | None,
        typer.Option("--jitter-factor", metavar="FACTOR", help="0.1 for ±10%; 0 for none."),
    ] = None,
    deadline_s: Annotated[
        float | None,
        typer.Option("--deadline", metavar="SECONDS", help="No retry begins later than this."),
    ] = None,
    max_rate_limited: Annotated[
        int | None,
        typer.Option(
            "--max-rate-limited", metavar="N", help="How often the other side may ask for patience."
        ),
    ] = None,
    max_retry_after_s: Annotated[
        float | None,
        typer.Option(
            "--max-retry-after", metavar="SECONDS", help="The longest wait that it may ask for."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Replay the retries of the past under another policy.

    It shows what would have changed. What is not given stays as it is set. The same calls are
    taken to fail in the same way. Calls that succeeded at once are in no log, and no policy
    changes them. Runs and partitions are no calls: RUN and PARTITION can only be explained.
    """
    from tileferry.entrypoints.cli.running import policy_simulate

    changes = {
        "max_attempts": max_attempts,
        "base_delay": base_delay,
        "max_delay": max_delay,
        "backoff_multiplier": backoff_multiplier,
        "jitter_factor": jitter_factor,
        "deadline_s": deadline_s,
        "max_rate_limited": max_rate_limited,
        "max_retry_after_s": max_retry_after_s,
    }
    policy_simulate.simulated(config, category=category, changes=changes, since=since, json=json)
