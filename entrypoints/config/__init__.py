"""The configuration: every setting is declared once, with its default.

Values come from ``tileferry.toml``, then the environment (one ``TILEFERRY_…`` variable per
setting), then flags; the last one wins.
"""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.entrypoints.config.audit import (
        AuditConfig,
        IdempotencyConfig,
        NatsConfig,
        SinkName,
        StoreName,
        TelemetryConfig,
    )
    from tileferry.entrypoints.config.fields import APP, Secret
    from tileferry.entrypoints.config.loader import load_config
    from tileferry.entrypoints.config.origins import CONFIG_FILE
    from tileferry.entrypoints.config.sections import (
        C6Config,
        C11Config,
        Config,
        LogConfig,
        LogLevel,
        PartitionsConfig,
        WorkerConfig,
    )
    from tileferry.entrypoints.config.serve import ServeConfig
    from tileferry.entrypoints.config.setting_names import ENV_PREFIX

__all__ = [
    "APP",
    "CONFIG_FILE",
    "ENV_PREFIX",
    "AuditConfig",
    "C6Config",
    "C11Config",
    "Config",
    "IdempotencyConfig",
    "LogConfig",
    "LogLevel",
    "NatsConfig",
    "PartitionsConfig",
    "Secret",
    "ServeConfig",
    "SinkName",
    "StoreName",
    "TelemetryConfig",
    "WorkerConfig",
    "load_config",
]
