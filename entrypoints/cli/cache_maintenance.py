"""``tileferry cache prune`` and ``cache compact``: free the space of a cache."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.option_types import ConfirmOption, SourceOption, WaitOption

if TYPE_CHECKING:
    from tileferry.domain.tiles import PrunedTiles

PRUNE_SCHEMA = "tileferry.cache.prune.v1"
COMPACT_SCHEMA = "tileferry.cache.compact.v1"


def add_maintenance_commands(app: typer.Typer) -> None:
    """Add both commands to the cache group."""
    app.command(
        "prune",
        epilog=format_examples(
            "tileferry cache prune --unowned --dry-run",
            "tileferry cache prune --unowned --unused-days 90 --confirm-count 0",
        ),
    )(prune_command)
    app.command("compact", epilog=format_examples("tileferry cache compact"))(compact_command)


def prune_command(
    *,
    unowned: Annotated[
        bool, typer.Option("--unowned", help="Remove tiles that belong to no flight.")
    ] = False,
    unused_days: Annotated[
        float | None,
        typer.Option(
            "--unused-days",
            metavar="DAYS",
            min=0,
            max=36_500,
            help="Remove tiles that were not downloaded or reused for this long.",
        ),
    ] = None,
    source: SourceOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed.")
    ] = False,
    confirm_count: ConfirmOption = None,
    wait: WaitOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Remove tiles, and free their space.

    A tile must match every option. Tiles of pinned flights, captured tiles that are not uploaded
    and giveups are never removed.

    Exit codes: 0 done, or nothing matches; 4 not confirmed, or the cache is in use.
    """
    from tileferry.domain.tiles import PruneRule
    from tileferry.domain.tiles.tile_id import check_source
    from tileferry.entrypoints.cli.output import hold_cache, open_installation
    from tileferry.entrypoints.cli.partition_options import ask_confirmation

    if not unowned and unused_days is None and source is None:
        raise typer.BadParameter("specify what to remove: --unowned, --unused-days or --source")
    if source is not None:
        check_source(source, field="--source")
    with open_installation(config) as installation:
        now = installation.get_database_time()
        rule = PruneRule(
            unowned=unowned,
            unused_since=None if unused_days is None else now - timedelta(days=unused_days),
            source=source,
        )
        if dry_run:
            found = installation.cache_maintenance.preview_prune(rule)
        else:
            with hold_cache(installation, wait):
                maintenance = installation.cache_maintenance
                count = maintenance.preview_prune(rule).tiles
                confirmed = ask_confirmation(count, "remove", "tiles", confirm_count)
                found = maintenance.prune(rule, confirmed=confirmed)
    _show_pruned(found, dry_run=dry_run, json=json)


def _show_pruned(found: "PrunedTiles", *, dry_run: bool, json: bool) -> None:
    from attrs import asdict

    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.output import print_json, stdout

    if json:
        print_json(PRUNE_SCHEMA, {**asdict(found), "dry_run": dry_run})
        return
    verb = "would be removed" if dry_run else "removed"
    stdout.print(f"{found.tiles:,} tiles, {format_bytes(found.size_bytes)}, {verb}.")


def compact_command(
    *, wait: WaitOption = None, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Free the space of deleted and replaced tiles.

    Rewrites files that are less than 90 % in use; tiles stay readable meanwhile.

    Exit codes: 0 done, or nothing to do; 3 damaged tiles were left where they are; 4 the cache is
    in use.
    """
    from attrs import asdict

    from tileferry.domain.text import format_bytes, printable
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        hold_cache,
        open_installation,
        print_json,
        stdout,
    )

    with open_installation(config) as installation, hold_cache(installation, wait):
        report = installation.cache_maintenance.compact()
    if json:
        print_json(COMPACT_SCHEMA, asdict(report))
    else:
        rows: dict[str, object] = {
            "freed": format_bytes(report.freed_bytes),
            "files removed": report.segments_removed,
            "tiles moved": f"{report.tiles_moved:,}",
            "damaged tiles": "\n".join(map(printable, report.damaged_tiles)) or "none",
        }
        stdout.print(build_facts_table("Compaction", rows))
    if report.damaged_tiles:
        raise typer.Exit(ExitCode.PARTIAL)
