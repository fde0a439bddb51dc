"""The configuration: one declaration of every field, its default, and where it may come from.

First ``tileferry.toml``, then the environment (``TILEFERRY_…``, one name a field), then flags.
"""

from tileferry.entrypoints.config.loader import CONFIG_FILE, load_config
from tileferry.entrypoints.config.sections import (
    APP,
    AuditConfig,
    C6Config,
    C11Config,
    Config,
    LogConfig,
    LogLevel,
    PartitionsConfig,
    SinkName,
    WorkerConfig,
)
from tileferry.entrypoints.config.setting_names import ENV_PREFIX

__all__ = [
    "APP",
    "CONFIG_FILE",
    "ENV_PREFIX",
    "AuditConfig",
    "C6Config",
    "C11Config",
    "Config",
    "LogConfig",
    "LogLevel",
    "PartitionsConfig",
    "SinkName",
    "WorkerConfig",
    "load_config",
]
