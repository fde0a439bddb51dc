"""What can be done about an error. A user interface words it: as a command, a call or a button."""

from enum import StrEnum, unique


@unique
class Remedy(StrEnum):
    """A step that fixes an error. The value says it without naming any interface.

    ``{error.count}`` stands for that field of the error.
    """

    ALLOW_REPLACING = "choose another name, or allow replacing it"
    ALLOW_REPLACING_TILES = "allow replacing tiles to keep the later one"
    APPLY_BACKFILL = "plan and apply a backfill of its date, which starts a new extraction"
    BIND_CACHE = (
        "mount that cache or set c11.cache_root to it, or give this cache a database of its own "
        "(database_url or data_dir); workers elsewhere can run acquire_partition only; if that "
        "cache is lost, empty the table bound_cache"
    )
    CHECK_EXPORT_AREA = "check the area, the zoom levels and the source, or download the area first"
    CHECK_PEER = (
        "check that ssh reaches the machine and that tileferry works there, then start again; "
        "packs that were applied are kept"
    )
    CONFIRM_COUNT = "check the range, then confirm the count {error.count}"
    CONFIRM_FAR_AREA = "check the order west, south, east, north; confirm if the area is right"
    CONFIRM_LANDING = (
        "set it where the worker runs; for one upload, pass a flight record or confirm that the "
        "aircraft has landed"
    )
    CREATE_PACK = "create a pack of what it lacks"
    DOWNLOAD_AREA = "download its area first"
    DOWNLOAD_FROM_START = (
        "start a new download instead of resuming, or check area, zoom, sector and flight"
    )
    END_DATABASE_USERS = "end the processes that use it, such as workers, then stop it again"
    FREE_CACHE_SPACE = (
        "request a smaller area or fewer zoom levels, unpin a flight, or raise c6.budget_bytes"
    )
    GIVE_REASON = "give a reason; the audit log keeps it"
    HOLD_CACHE_LOCK = "acquire the lock first"
    LIST_FLIGHTS = "list the flights; a download creates one"
    LIST_GIVEUPS = "list the given-up tiles"
    LIST_PARTITIONS = "list the partitions; plan a backfill to create new ones"
    LIST_RUNS = "list the runs"
    LIST_SETTINGS = "unset it, or correct its name"
    NAME_SCHEME = "say how its rows are counted: tms from the south, xyz from the north"
    PLAN_BACKFILL = "make a backfill plan"
    REPLAN_BACKFILL = "make a new plan"
    RETRY_PARTITION = (
        "retry the partition, or plan and apply a backfill if it left no raw partition"
    )
    SET_PRODUCED_AT = "state when the imagery was produced"
    SHOW_OTHER_RUN = "look at run {error.other_run_id}"
    SHOW_AUDIT_STATS = "check the retries of the last hour and the services they call"
    TAIL_AUDIT_LOG = "list the entries of the audit log"
    TRUST_PACK_KEY = (
        "if the pack is from a machine of yours, add its key to pack.trusted_keys on this one"
    )
    UPLOAD_CAPTURES = "upload them first"
    UPGRADE_DATABASE = "upgrade the database schema"
    VERIFY_CACHE = "verify the cache, then download the area again"
