"""The settings, by table: each with its default, validator and help text."""

from enum import StrEnum
from pathlib import Path

import typed_settings as ts
from attrs import field, frozen, validators
from platformdirs import user_data_path, user_log_path

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BATCH_TILES_MAX, TILE_BYTES_MAX, TileTemplate
from tileferry.domain.validation import DURATION_MAX, integer, number
from tileferry.entrypoints.config.fields import (
    above_zero,
    check_areas,
    check_order,
    doc,
    source_name,
    to_secret,
)
from tileferry.entrypoints.config.retry_overrides import RetryConfig
from tileferry.entrypoints.config.xyz import XyzConfig

APP = "tileferry"
PROVIDER_SOURCE = "satellite"


def _data_path(name: str) -> Path:
    return user_data_path(APP) / name


@frozen(kw_only=True)
class C6Config:
    """The tile cache."""

    budget_bytes: int | None = field(
        default=None,
        validator=validators.optional(integer(0)),
        metadata=doc("How large the cache may grow; by default half of its disk.", 50_000_000_000),
    )
    free_space_reserve_bytes: int | None = field(
        default=None,
        validator=validators.optional(integer(0)),
        metadata=doc(
            "What stays free on the disk, whatever the budget says; by default a twentieth of it.",
            5_000_000_000,
        ),
    )


@frozen(kw_only=True)
class C11Config:
    """The tile manager."""

    cache_root: Path = field(
        factory=lambda: _data_path("cache"), metadata=doc("The folder of the cache.")
    )
    satellite_provider_url: str | None = field(
        default=None,
        metadata=doc(
            "Where the provider is: `https://host`; plain http for this machine only.",
            "https://imagery.example",
        ),
    )
    service_api_key: ts.Secret[str] | None = field(
        default=None,
        converter=to_secret,
        metadata=doc(
            "The key for the provider; from the environment, or better from `service_api_key_file`."
        ),
    )
    service_api_key_file: Path | None = field(
        default=None,
        metadata=doc(
            "A file that holds the key and that nobody else may read (mode 0600).",
            "/home/me/.config/tileferry/key",
        ),
    )
    ca_file: Path | None = field(
        default=None,
        metadata=doc(
            "Certificates of a private authority, in PEM form.", "/etc/ssl/imagery-ca.pem"
        ),
    )
    source: str | None = field(
        default=None,
        validator=validators.optional(source_name),
        metadata=doc(
            "The name of the provider's tiles in the cache; by default `satellite`, and for a "
            "plain tile server `xyz-` and its host.",
            PROVIDER_SOURCE,
        ),
    )
    http_timeout_s: float = field(
        default=10.0,
        validator=number(0.001, 3600),
        metadata=doc("How long to wait for a connection, and between two pieces of an answer."),
    )
    response_deadline_s: float = field(
        default=120.0,
        validator=number(0.001, 3600),
        metadata=doc("How long one answer may take in all."),
    )
    max_5xx_retries: int = field(
        default=4,
        validator=integer(0, 100),
        metadata=doc("How often a listing or a tile is asked for again when the provider fails."),
    )
    max_retry_after_s: float = field(
        default=300.0,
        validator=number(0, 86_400),
        metadata=doc("No wait that the provider asks for is longer than this."),
    )
    max_concurrent_requests: int = field(
        default=8, validator=integer(1, 64), metadata=doc("How many tiles are fetched at a time.")
    )
    max_tile_bytes: int = field(
        default=16 * 1024 * 1024,
        validator=integer(1, TILE_BYTES_MAX),
        metadata=doc("What is larger is not taken for a tile."),
    )
    min_resolution_m_per_px: float = field(
        default=0.5,
        validator=above_zero,
        metadata=doc("Tiles with fewer meters to a pixel than this are refused."),
    )
    max_resolution_m_per_px: float | None = field(
        default=None,
        validator=validators.optional(above_zero),
        metadata=doc("Tiles with more than this are refused as too coarse; by default none.", 2.0),
    )
    max_in_call_retries: int = field(
        default=3,
        validator=integer(0, 100),
        metadata=doc("How often one upload command tries again what the provider rejected."),
    )
    max_per_tile_attempts: int = field(
        default=5,
        validator=integer(1, 1_000),
        metadata=doc("How often a tile may be rejected in its life before a human has to decide."),
    )
    backoff_base_s: float = field(
        default=2.0,
        validator=number(0, 3_600),
        metadata=doc("The n-th retry of an upload waits this to the power of n."),
    )
    backoff_cap_s: float = field(
        default=60.0,
        validator=number(0, 86_400),
        metadata=doc("No such wait is longer than this."),
    )
    flight_record_file: Path | None = field(
        default=None,
        metadata=doc(
            "What says where the aircraft is; only `on_ground` opens an upload.",
            "/media/card/flight.json",
        ),
    )
    upload_batch_tiles: int = field(
        default=100,
        validator=integer(1, BATCH_TILES_MAX),
        metadata=doc("How many tiles one request of an upload has at most."),
    )
    upload_batch_bytes: int = field(
        default=16 * 1024 * 1024,
        validator=integer(1),
        metadata=doc("And how many bytes, unless one tile is larger."),
    )
    disable_retry_decorator: bool = field(
        default=False,
        metadata=doc(
            "For debugging: an upload makes one pass, counts no rejection and gives nothing up."
        ),
    )
    stop_grace_s: float = field(
        default=10.0,
        validator=number(0, 3600),
        metadata=doc("How long a command that is told to stop may take to make safe what it has."),
    )

    def __attrs_post_init__(self) -> None:
        check_order(self, "min_resolution_m_per_px", "max_resolution_m_per_px")


@frozen(kw_only=True)
class WorkerConfig:
    """The queue of runs and its workers."""

    lease_s: float = field(
        default=60.0,
        validator=number(0.1, 86_400),
        metadata=doc("How long a run stays with a worker that is not heard of."),
    )
    batch: int = field(
        default=1,
        validator=integer(1, 1_000),
        metadata=doc(
            "How many runs a worker takes at a time; more than one is for many short runs."
        ),
    )
    poll_s: float = field(
        default=1.0,
        validator=number(0.01, 3_600),
        metadata=doc("How often to look for runs that nobody has announced."),
    )
    sweep_s: float = field(
        default=5.0,
        validator=number(0.01, 3_600),
        metadata=doc(
            "How often to look for runs whose worker has gone, and for partitions to try again."
        ),
    )
    drain_s: float = field(
        default=30.0,
        validator=number(0, 86_400),
        metadata=doc(
            "How long a worker that is told to stop may go on with its run before it gives it back."
        ),
    )
    readiness_file: Path | None = field(
        default=None,
        metadata=doc(
            "Is there while the worker takes runs.",
            "/run/tileferry/ready",
        ),
    )
    max_attempts: int = field(
        default=8, validator=integer(1, 1_000), metadata=doc("How often a run is tried in all.")
    )
    initial_backoff_s: float = field(
        default=60.0,
        validator=number(0, 86_400),
        metadata=doc("How long a run waits before it is tried for the second time."),
    )
    max_backoff_s: float = field(
        default=3_600.0,
        validator=number(0, 604_800),
        metadata=doc("No such wait is longer than this."),
    )
    backoff_multiplier: float = field(
        default=2.0,
        validator=number(1, 100),
        metadata=doc("How much longer each wait is than the one before."),
    )
    max_rescues: int = field(
        default=5,
        validator=integer(0, 1_000),
        metadata=doc("How many workers a run may lose before it is put aside as what kills them."),
    )

    def __attrs_post_init__(self) -> None:
        check_order(self, "initial_backoff_s", "max_backoff_s")


@frozen(kw_only=True)
class PartitionsConfig:
    """Partitions: the folder of their raw data, and the limits of the validator and the policy."""

    raw_root: Path = field(
        factory=lambda: _data_path("raw"),
        metadata=doc(
            "The folder of raw partitions; workers on several machines need a shared one."
        ),
    )
    max_attempts: int = field(
        default=4,
        validator=integer(1, 1_000),
        metadata=doc(
            "How often the validator may reject a partition before only an operator tries it again."
        ),
    )
    max_age_days: float | None = field(
        default=None,
        validator=validators.optional(number(0.001, DURATION_MAX.days)),
        metadata=doc("After so long a failed partition is not tried again by itself.", 14),
    )
    max_missing_share: float = field(
        default=0.0,
        validator=number(0, 1),
        metadata=doc("Of the tiles that the provider listed, how many may then not be there."),
    )
    max_rejected_share: float = field(
        default=0.0, validator=number(0, 1), metadata=doc("How many the gates may turn down.")
    )
    max_downgraded_share: float = field(
        default=0.1,
        validator=number(0, 1),
        metadata=doc("How many may be older than their sector likes."),
    )


class SinkName(StrEnum):
    """The destinations of audit events."""

    POSTGRES = "postgres"
    JSONL = "jsonl"
    LOG = "log"


@frozen(kw_only=True)
class AuditConfig:
    """The audit log."""

    sinks: list[SinkName] = field(
        factory=lambda: [SinkName.POSTGRES],
        metadata=doc(
            "Where events go. Only what is in Postgres can be verified, replayed and added up."
        ),
    )
    jsonl_path: Path = field(
        factory=lambda: _data_path("audit.jsonl"), metadata=doc("The file of the sink `jsonl`.")
    )
    fail_closed: bool = field(
        default=False,
        metadata=doc("Whether an operation stops when a sink does not take its events."),
    )
    alert_retries_per_minute: float | None = field(
        default=None,
        metadata=doc(
            "Where `audit stats` raises its alert; `retry.<CATEGORY>` may have another value.", 10
        ),
    )

    @sinks.validator
    def _check_sinks(self, _attribute: object, value: list[SinkName]) -> None:
        if not value:
            raise InvalidValueError(
                field="audit.sinks", value=value, problem="must name one place at least"
            )


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@frozen(kw_only=True)
class LogConfig:
    """The log file. The terminal shows only warnings, independent of these settings."""

    file: Path = field(
        factory=lambda: user_log_path(APP) / "tileferry.jsonl",
        metadata=doc("Where records go, one JSON object a line."),
    )
    level: LogLevel = field(default=LogLevel.INFO, metadata=doc("The least that is written."))


@frozen(kw_only=True)
class Config:
    """All settings."""

    database_url: ts.Secret[str] | None = field(
        default=None,
        converter=to_secret,
        metadata=doc(
            "`postgresql://user:password@host:port/database`; by default a server of its own."
        ),
    )
    data_dir: Path = field(
        factory=lambda: _data_path("postgres"),
        metadata=doc("Where the embedded server keeps its data."),
    )
    c11: C11Config = field(factory=C11Config)
    xyz: XyzConfig = field(factory=XyzConfig)
    c6: C6Config = field(factory=C6Config)
    retry: RetryConfig = field(
        factory=RetryConfig, metadata=doc("What a deployment changes about the retry policies.")
    )
    worker: WorkerConfig = field(factory=WorkerConfig)
    partitions: PartitionsConfig = field(factory=PartitionsConfig)
    audit: AuditConfig = field(factory=AuditConfig)
    log: LogConfig = field(factory=LogConfig)
    areas: dict[str, str] = field(
        factory=dict,
        validator=check_areas,
        metadata=doc(
            "Names for areas that are asked for often, each a box `W,S,E,N`: `--area NAME`."
        ),
    )

    @property
    def source(self) -> str:
        """The source name of downloaded tiles: as configured, or the default of the server."""
        if self.c11.source is not None:
            return self.c11.source
        template = self.xyz.url_template
        return PROVIDER_SOURCE if template is None else TileTemplate(template).source
