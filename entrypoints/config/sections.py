"""The settings, by table: each with its default, validator and help text."""

from enum import StrEnum
from pathlib import Path

from attrs import field, frozen, validators
from platformdirs import user_log_path

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import DOWNLOAD_SESSION_POLICY, REFILL_PER_S_MIN, RetryBudget
from tileferry.domain.runs import QUEUE_BUDGET
from tileferry.domain.tiles.limits import BATCH_TILES_MAX, MIN_M_PER_PX, TILE_BYTES_MAX
from tileferry.domain.validation import DURATION_MAX, integer, number
from tileferry.entrypoints.config.audit import (
    AuditConfig,
    IdempotencyConfig,
    NatsConfig,
    SinkName,
    StoreName,
    TelemetryConfig,
)
from tileferry.entrypoints.config.fields import (
    APP,
    Secret,
    above_zero,
    check_areas,
    check_order,
    data_path,
    doc,
    source_name,
    to_secret,
)
from tileferry.entrypoints.config.pack import PackConfig
from tileferry.entrypoints.config.retry_overrides import RetryConfig
from tileferry.entrypoints.config.serve import ServeConfig
from tileferry.entrypoints.config.xyz import SecondaryConfig, XyzConfig

PROVIDER_SOURCE = "satellite"


@frozen(kw_only=True)
class C6Config:
    """The tile cache."""

    budget_bytes: int | None = field(
        default=None,
        validator=validators.optional(integer(0)),
        metadata=doc("Maximum size of the cache; by default half of the disk.", 50_000_000_000),
    )
    free_space_reserve_bytes: int | None = field(
        default=None,
        validator=validators.optional(integer(0)),
        metadata=doc(
            "Disk space that always stays free; by default 5 % of the disk, 1 to 20 GiB.",
            5_000_000_000,
        ),
    )
    accept_absent: bool = field(
        default=False,
        metadata=doc(
            "Whether an area is complete, and ready to fly, without the tiles that the provider "
            "does not have."
        ),
    )
    confirmed_within_days: float | None = field(
        default=None,
        validator=validators.optional(number(0, 3_650)),
        metadata=doc(
            "An area is ready only if each tile was delivered or confirmed within this time; by "
            "default there is no limit.",
            7.0,
        ),
    )


@frozen(kw_only=True)
class C11Config:
    """The tile manager."""

    cache_root: Path = field(
        factory=lambda: data_path("cache"), metadata=doc("The folder of the cache.")
    )
    satellite_provider_url: str | None = field(
        default=None,
        metadata=doc(
            "Address of the provider: `https://host`; http is allowed on this machine only.",
            "https://imagery.example",
        ),
    )
    service_api_key: Secret | None = field(
        default=None,
        converter=to_secret,
        metadata=doc("API key of the provider; `service_api_key_file` is safer."),
    )
    service_api_key_file: Path | None = field(
        default=None,
        metadata=doc(
            "File with the API key; its mode must be 0600.",
            "/home/me/.config/tileferry/key",
        ),
    )
    ca_file: Path | None = field(
        default=None,
        metadata=doc("Certificates of a private CA, in PEM format.", "/etc/ssl/imagery-ca.pem"),
    )
    source: str | None = field(
        default=None,
        validator=validators.optional(source_name),
        metadata=doc(
            "Source name of the downloaded tiles; by default `satellite`, or `xyz-` and the host "
            "for an XYZ server.",
            PROVIDER_SOURCE,
        ),
    )
    http_timeout_s: float = field(
        default=10.0,
        validator=number(0.001, 3600),
        metadata=doc("Timeout for a connection, and between two reads, in seconds."),
    )
    response_deadline_s: float = field(
        default=120.0,
        validator=number(0.001, 3600),
        metadata=doc("Maximum time for one response, in seconds."),
    )
    max_5xx_retries: int = field(
        default=4,
        validator=integer(0, 100),
        metadata=doc("Retries of a failed listing or tile request."),
    )
    max_retry_after_s: float = field(
        default=300.0,
        validator=number(0, 86_400),
        metadata=doc("Upper limit for a wait that the provider asks for, in seconds."),
    )
    give_up_after_s: float = field(
        default=DOWNLOAD_SESSION_POLICY.deadline_s or 0.0,
        validator=number(0, 43_200),
        metadata=doc(
            "A download stops when nothing has improved for this long, and work that uses the"
            " cache waits this long for a database server that is away (seconds)."
        ),
    )
    retry_budget_capacity: float = field(
        default=RetryBudget().capacity,
        validator=number(1, 1_000_000),
        metadata=doc("Retries that may start at once; each costs a token of the retry budget."),
    )
    retry_budget_refill_per_s: float = field(
        default=RetryBudget().refill_per_s,
        validator=number(REFILL_PER_S_MIN, 1_000_000),
        metadata=doc("Tokens that the budget gains per second: the rate of retries in an outage."),
    )
    retry_budget_earned_per_success: float = field(
        default=RetryBudget().earned_per_success,
        validator=number(0, 1),
        metadata=doc("Tokens that the budget gains with each successful request."),
    )
    max_concurrent_requests: int = field(
        default=8, validator=integer(1, 64), metadata=doc("Concurrent tile requests.")
    )
    max_tile_bytes: int = field(
        default=16 * 1024 * 1024,
        validator=integer(1, TILE_BYTES_MAX),
        metadata=doc("Larger tiles are rejected."),
    )
    min_resolution_m_per_px: float | None = field(
        default=None,
        validator=validators.optional(above_zero),
        metadata=doc(
            "Finer imagery is rejected (m/px); by default 0.5, and no limit for an XYZ server.", 0.5
        ),
    )
    max_resolution_m_per_px: float | None = field(
        default=None,
        validator=validators.optional(above_zero),
        metadata=doc("Coarser imagery is rejected (m/px); by default there is no limit.", 2.0),
    )
    absent_ttl_days: float = field(
        default=7.0,
        validator=number(0, 3_650),
        metadata=doc("How long a tile that the provider does not have is not requested again."),
    )
    max_in_call_retries: int = field(
        default=3,
        validator=integer(0, 100),
        metadata=doc("Retry passes of one upload over rejected tiles."),
    )
    max_per_tile_attempts: int = field(
        default=5,
        validator=integer(1, 1_000),
        metadata=doc("Rejections of a tile, over its lifetime, before it is given up."),
    )
    backoff_base_s: float = field(
        default=2.0,
        validator=number(0, 3_600),
        metadata=doc("The n-th retry pass waits this value to the power of n, in seconds."),
    )
    backoff_cap_s: float = field(
        default=60.0,
        validator=number(0, 86_400),
        metadata=doc("Upper limit for that wait, in seconds."),
    )
    flight_record_file: Path | None = field(
        default=None,
        metadata=doc(
            "Flight record; uploads start only when its state is `on_ground`.",
            "/media/card/flight.json",
        ),
    )
    upload_batch_tiles: int = field(
        default=100,
        validator=integer(1, BATCH_TILES_MAX),
        metadata=doc("Maximum number of tiles in one upload request."),
    )
    upload_batch_bytes: int = field(
        default=16 * 1024 * 1024,
        validator=integer(1),
        metadata=doc("Maximum bytes of tiles in one upload request; a larger tile is sent alone."),
    )
    disable_retry_decorator: bool = field(
        default=False,
        metadata=doc(
            "For debugging: an upload makes one pass, counts no rejections and gives nothing up."
        ),
    )
    stop_grace_s: float = field(
        default=10.0,
        validator=number(0, 3600),
        metadata=doc("Time for an orderly stop after a signal, in seconds."),
    )


@frozen(kw_only=True)
class WorkerConfig:
    """The queue of runs and its workers."""

    lease_s: float = field(
        default=60.0,
        validator=number(0.1, 86_400),
        metadata=doc(
            "A run is rescued when its worker has not renewed the lease for this long (seconds)."
        ),
    )
    batch: int = field(
        default=1,
        validator=integer(1, 1_000),
        metadata=doc("Runs that a worker claims at a time; use more for many short runs."),
    )
    poll_s: float = field(
        default=1.0,
        validator=number(0.01, 3_600),
        metadata=doc("Interval for polling the queue, in seconds."),
    )
    sweep_s: float = field(
        default=5.0,
        validator=number(0.01, 3_600),
        metadata=doc("Interval for rescuing runs and retrying partitions, in seconds."),
    )
    drain_s: float = field(
        default=30.0,
        validator=number(0, 86_400),
        metadata=doc("Time that the current run gets to finish after a signal, in seconds."),
    )
    readiness_file: Path | None = field(
        default=None,
        metadata=doc(
            "File that exists while the worker claims runs.",
            "/run/tileferry/ready",
        ),
    )
    idle_patience_s: float = field(
        default=10.0,
        validator=number(0, 86_400),
        metadata=doc("With `--until-idle`: wait for runs that are due within this time (seconds)."),
    )
    max_attempts: int = field(
        default=8,
        validator=integer(1, 1_000),
        metadata=doc("Attempts of a run in total."),
    )
    initial_backoff_s: float = field(
        default=60.0,
        validator=number(0, 86_400),
        metadata=doc("Wait before the first retry of a run, in seconds."),
    )
    max_backoff_s: float = field(
        default=3_600.0,
        validator=number(0, 604_800),
        metadata=doc("Upper limit for that wait, in seconds."),
    )
    backoff_multiplier: float = field(
        default=2.0,
        validator=number(1, 100),
        metadata=doc("Factor between two waits."),
    )
    retry_tokens: float = field(
        default=QUEUE_BUDGET.capacity,
        validator=number(1, 1_000_000),
        metadata=doc("Retry tokens that a source can hold; each retry of a run takes one."),
    )
    retry_tokens_per_s: float = field(
        default=QUEUE_BUDGET.refill_per_s,
        validator=number(0.001, 1_000),
        metadata=doc("Retry tokens that a source gets per second."),
    )
    retry_tokens_per_run: float = field(
        default=QUEUE_BUDGET.earned_per_success,
        validator=number(0, 1),
        metadata=doc("Retry tokens that a source gets for each new run."),
    )
    max_rescues: int = field(
        default=5,
        validator=integer(0, 1_000),
        metadata=doc("Workers that a run may lose before it is quarantined."),
    )

    def __attrs_post_init__(self) -> None:
        check_order(self, "initial_backoff_s", "max_backoff_s")


@frozen(kw_only=True)
class PartitionsConfig:
    """Partitions: the folder of their raw data, and the limits of the validator and the policy."""

    raw_root: Path = field(
        factory=lambda: data_path("raw"),
        metadata=doc(
            "Folder of the raw partitions; workers on several machines need a shared one."
        ),
    )
    max_attempts: int = field(
        default=4,
        validator=integer(1, 1_000),
        metadata=doc("Verdicts before only an operator can retry a partition."),
    )
    initial_backoff_s: float = field(
        default=300.0,
        validator=number(0, 604_800),
        metadata=doc("Wait before the first automatic retry of a partition, in seconds."),
    )
    max_backoff_s: float = field(
        default=7_200.0,
        validator=number(0, 604_800),
        metadata=doc("Upper limit for that wait, in seconds."),
    )
    backoff_multiplier: float = field(
        default=6.0,
        validator=number(1, 100),
        metadata=doc("Factor between two waits."),
    )
    jitter_enabled: bool = field(
        default=True,
        metadata=doc("Whether these waits vary at random."),
    )
    jitter_factor: float = field(
        default=0.1,
        validator=number(0, 1),
        metadata=doc("Maximum share by which these waits vary."),
    )
    max_age_days: float | None = field(
        default=None,
        validator=validators.optional(number(0.001, DURATION_MAX.days)),
        metadata=doc("Older failed partitions are not retried automatically.", 14),
    )
    allow_undated: bool = field(
        default=False,
        metadata=doc("Allow the current imagery of a plain tile server for past dates."),
    )
    max_missing_share: float = field(
        default=0.0,
        validator=number(0, 1),
        metadata=doc("Maximum share of listed tiles that the provider then does not have."),
    )
    max_rejected_share: float = field(
        default=0.0,
        validator=number(0, 1),
        metadata=doc("Maximum share of tiles that a gate rejects."),
    )
    max_downgraded_share: float = field(
        default=0.1,
        validator=number(0, 1),
        metadata=doc("Maximum share of tiles older than the sector's freshness limit."),
    )

    def __attrs_post_init__(self) -> None:
        check_order(self, "initial_backoff_s", "max_backoff_s")


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
        metadata=doc("Log file, one JSON object per line."),
    )
    level: LogLevel = field(default=LogLevel.INFO, metadata=doc("Lowest level that is written."))


@frozen(kw_only=True)
class Config:
    """All settings."""

    database_url: Secret | None = field(
        default=None,
        converter=to_secret,
        metadata=doc(
            "`postgresql://user:password@host:port/database`; by default the embedded server."
        ),
    )
    database_listen_url: Secret | None = field(
        default=None,
        converter=to_secret,
        metadata=doc(
            "Address of the server itself, if `database_url` is that of a pooler: workers are"
            " notified of new runs there. By default workers behind a pooler poll."
        ),
    )
    data_dir: Path = field(
        factory=lambda: data_path("postgres"),
        metadata=doc("Data of the embedded server."),
    )
    database_start_timeout_s: float = field(
        default=300.0,
        validator=number(1, 86_400),
        metadata=doc(
            "How long to wait for the embedded server, which recovers after a crash (seconds)."
        ),
    )
    c11: C11Config = field(factory=C11Config)
    xyz: XyzConfig = field(factory=XyzConfig)
    secondary: SecondaryConfig = field(factory=SecondaryConfig)
    c6: C6Config = field(factory=C6Config)
    retry: RetryConfig = field(factory=RetryConfig, metadata=doc("Changes to the retry policies."))
    worker: WorkerConfig = field(factory=WorkerConfig)
    partitions: PartitionsConfig = field(factory=PartitionsConfig)
    audit: AuditConfig = field(factory=AuditConfig)
    idempotency: IdempotencyConfig = field(factory=IdempotencyConfig)
    nats: NatsConfig = field(factory=NatsConfig)
    telemetry: TelemetryConfig = field(factory=TelemetryConfig)
    serve: ServeConfig = field(factory=ServeConfig)
    pack: PackConfig = field(factory=PackConfig)
    log: LogConfig = field(factory=LogConfig)
    areas: dict[str, str] = field(
        factory=dict,
        validator=check_areas,
        metadata=doc("Names of areas for `--area NAME`, each a bounding box `W,S,E,N`."),
    )

    def __attrs_post_init__(self) -> None:
        least, most = self.min_resolution_m_per_px, self.c11.max_resolution_m_per_px
        if least is not None and most is not None and most < least:
            raise InvalidValueError(
                field="c11.max_resolution_m_per_px",
                value=most,
                problem=f"is below min_resolution_m_per_px, {least:g}",
            )

    @property
    def min_resolution_m_per_px(self) -> float | None:
        """The lower limit of the resolution; an XYZ server has none unless it is set."""
        least = self.c11.min_resolution_m_per_px
        return MIN_M_PER_PX if least is None and not self.xyz.is_set else least

    @property
    def uses_nats(self) -> bool:
        """Whether a part of the installation needs the NATS server."""
        return SinkName.NATS in self.audit.sinks or self.idempotency.store is StoreName.NATS

    @property
    def source(self) -> str:
        """The source name of downloaded tiles: as configured, or the default of the server."""
        if self.c11.source is not None:
            return self.c11.source
        server = self.xyz.build_address()
        return PROVIDER_SOURCE if server is None else server.source
