"""``tileferry audit``: what happened, whether the log can be trusted, and what it adds up to."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import SinceOption

app = group("The audit log: what was retried and why, and whether the log can be trusted.")
SHOWN_MAX = 1_000_000
"""All of them are held in memory, to be shown the oldest first."""


# tail


@app.command(
    "tail",
    epilog=examples(
        "tileferry audit tail --limit 50",
        "tileferry audit tail --category API_REQUEST --event-type retry_attempt",
        "tileferry audit tail --follow --json",
    ),
)
def tail_command(
    *,
    limit: Annotated[
        int,
        typer.Option("-n", "--limit", metavar="N", min=0, max=SHOWN_MAX, help="How many to show."),
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new entries until Ctrl-C.")
    ] = False,
    category: Annotated[
        str | None,
        typer.Option(
            "--category", metavar="NAME", help="Only of this category, such as API_REQUEST."
        ),
    ] = None,
    event_type: Annotated[
        str | None,
        typer.Option(
            "--event-type", metavar="NAME", help="Only of this type, such as retry_attempt."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show the newest entries, one line each, oldest first.

    Times are UTC. With --follow and --json every entry is an object on a line of its own.
    """
    from tileferry.entrypoints.cli.running import audit_tail

    audit_tail.shown(
        config, count=limit, follow=follow, category=category, event_type=event_type, json=json
    )


# verify


@app.command("verify", epilog=examples("tileferry audit verify", "tileferry audit verify --json"))
def verify_command(
    *,
    expect_head: Annotated[
        str | None,
        typer.Option(
            "--expect-head",
            metavar="N:HASH",
            help="A head that was printed earlier: the log must have passed through it.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Check that every entry is as it was written, and none is missing.

    It walks the whole chain and reads every event. Exit code 3 when it is broken.

    Note the head that is printed, somewhere else: given as --expect-head, it lets the next
    verification also find a log whose end was cut off or written anew.
    """
    from tileferry.entrypoints.cli.running import audit

    audit.verified(config, expect_head=expect_head, json=json)


# stats


@app.command(
    "stats",
    epilog=examples(
        "tileferry audit stats --since 24h",
        "tileferry audit stats --since 1h --alert-rate 10/min",
    ),
)
def stats_command(
    *,
    since: SinceOption = "24h",
    alert_rate: Annotated[
        str | None,
        typer.Option(
            "--alert-rate",
            metavar="N/min",
            help="Alert when a minute had more retries of one category than this.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Add up retries by category, draw them over time, and raise alerts.

    Exit code 3 on an alert. --alert-rate holds for every category; without it,
    audit.alert_retries_per_minute and retry.CATEGORY.alert_retries_per_minute of the
    configuration do.
    """
    from tileferry.entrypoints.cli.running import audit

    audit.added_up(config, since=since, alert_rate=alert_rate, json=json)


# replay


@app.command(
    "replay", epilog=examples("tileferry audit replay 1", "tileferry audit replay 1 --json")
)
def replay_command(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A sequence number, a correlation id, an idempotency key, or a subject.",
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Make each retry decision again from what was recorded.

    Exit code 3 when one differs.
    """
    from tileferry.entrypoints.cli.running import audit

    audit.replayed(config, name=name, json=json)
