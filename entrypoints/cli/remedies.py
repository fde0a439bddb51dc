"""The command line's wording of the remedies of errors."""

from collections.abc import Mapping
from types import MappingProxyType

from tileferry.domain.errors import Remedy, TileManagerError

WORDINGS: Mapping[Remedy, str] = MappingProxyType(
    {
        Remedy.ALLOW_REPLACING: "choose another name or use --replace",
        Remedy.ALLOW_REPLACING_TILES: "use --replace-tiles to keep the later one",
        Remedy.APPLY_BACKFILL: (
            "start a new extraction of its date with `tileferry backfill plan` and "
            "`tileferry backfill apply`"
        ),
        Remedy.BIND_CACHE: (
            "mount that cache or set c11.cache_root to it, or give this cache a database of its "
            "own (database_url or data_dir); run workers elsewhere with --kind acquire_partition; "
            "if that cache is lost, empty the table bound_cache"
        ),
        Remedy.CHECK_EXPORT_AREA: (
            "check the area, --zoom and --source, or download the area first with "
            "`tileferry download`"
        ),
        Remedy.CONFIRM_COUNT: "check the range, then confirm with --confirm-count {error.count}",
        Remedy.CONFIRM_FAR_AREA: (
            "check the order west, south, east, north; use --far if the area is right"
        ),
        Remedy.CONFIRM_LANDING: (
            "set it where the worker runs; for one upload, use --flight-record FILE, or confirm "
            "that the aircraft has landed with --on-ground"
        ),
        Remedy.DOWNLOAD_AREA: "download its area first with `tileferry download`",
        Remedy.DOWNLOAD_FROM_START: (
            "run without --only-failed, or check area, zoom, sector and flight"
        ),
        Remedy.END_DATABASE_USERS: (
            "end the processes that use it, such as workers, then run `tileferry db stop` again"
        ),
        Remedy.FREE_CACHE_SPACE: (
            "request a smaller area or fewer zoom levels, unpin a flight with "
            "`tileferry flight unpin`, or raise c6.budget_bytes"
        ),
        Remedy.GIVE_REASON: "use --reason; the audit log keeps it",
        Remedy.HOLD_CACHE_LOCK: "run `tileferry download` or another command that takes the lock",
        Remedy.LIST_FLIGHTS: (
            "list the flights with `tileferry flight list`; `tileferry download` creates one"
        ),
        Remedy.LIST_GIVEUPS: "list the given-up tiles with `tileferry giveups list`",
        Remedy.LIST_PARTITIONS: (
            "list the partitions with `tileferry state inspect`, or create new ones with "
            "`tileferry backfill plan`"
        ),
        Remedy.LIST_RUNS: "list the runs with `tileferry runs list`",
        Remedy.LIST_SETTINGS: "unset it; list all settings with `tileferry config show`",
        Remedy.NAME_SCHEME: (
            "use --scheme tms if its rows are counted from the south, or --scheme xyz if they are "
            "counted from the north"
        ),
        Remedy.PLAN_BACKFILL: "use `tileferry backfill plan`",
        Remedy.REPLAN_BACKFILL: "make a new plan with `tileferry backfill plan`",
        Remedy.RETRY_PARTITION: (
            "use `tileferry state retry`, or `tileferry backfill plan` and "
            "`tileferry backfill apply` if it left no raw partition"
        ),
        Remedy.SET_PRODUCED_AT: "use --produced-at",
        Remedy.SHOW_OTHER_RUN: "see `tileferry runs show {error.other_run_id}`",
        Remedy.SHOW_AUDIT_STATS: "see `tileferry audit stats`",
        Remedy.TAIL_AUDIT_LOG: "list the entries with `tileferry audit tail`",
        Remedy.CHECK_PEER: (
            "check that ssh reaches it and that --remote-command starts tileferry there, then"
            " re-run; packs that were applied are kept"
        ),
        Remedy.CREATE_PACK: "create a pack of what it lacks with `tileferry pack create`",
        Remedy.TRUST_PACK_KEY: (
            "if the pack is from a machine of yours, add its key, which `tileferry pack key` shows"
            " there, to pack.trusted_keys here"
        ),
        Remedy.UPLOAD_CAPTURES: "upload them first with `tileferry upload`",
        Remedy.UPGRADE_DATABASE: "run `tileferry db upgrade`",
        Remedy.VERIFY_CACHE: (
            "run `tileferry cache verify`, then `tileferry download` for the area, with --repair"
        ),
    }
)


def describe_error(error: TileManagerError) -> str:
    """Return the whole message of an error, with the command or option that fixes it."""
    return error.describe(WORDINGS)


def word_remedy(remedy: Remedy | str) -> str:
    """Return the command line's wording of a remedy that needs no field of its error."""
    return WORDINGS[remedy] if isinstance(remedy, Remedy) else remedy
