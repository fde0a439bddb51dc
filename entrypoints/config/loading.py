"""Where settings come from: ``tileferry.toml``, then the environment, then flags."""

from pathlib import Path

import typed_settings as ts

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config.names import unknown_setting, wrong_setting
from tileferry.entrypoints.config.retries import alert_thresholds, configured_policies
from tileferry.entrypoints.config.sections import APP, Config

CONFIG_FILE = "tileferry.toml"
ENV_PREFIX = "TILEFERRY_"


def load_config(file: Path | None = None) -> Config:
    """Read the configuration; what cannot be is refused by the field's name."""
    try:
        config = ts.load(
            Config, appname=APP, config_files=[file or Path(CONFIG_FILE)], env_prefix=ENV_PREFIX
        )
    except ts.exceptions.InvalidSettingsError as error:
        text = str(error.exceptions[0])
        remedy = f"correct it in {CONFIG_FILE}, or in its variable {ENV_PREFIX}…"
        raise wrong_setting(text, Config, remedy) from None  # that text may quote a secret
    except ts.exceptions.InvalidOptionsError as error:
        # Its text ends with the paths of all that it does not know.
        raise unknown_setting(str(error).rpartition(": ")[2].split(", ")[0], Config) from None
    except (ts.exceptions.TsError, OSError) as error:
        raise InvalidValueError(
            field=CONFIG_FILE, value=str(file or CONFIG_FILE), problem=f"cannot be read: {error}"
        ) from error
    # Values that make no sense are found now, not when the first call fails.
    configured_policies(config.retry)
    alert_thresholds(config.audit.alert_retries_per_minute, config.retry)
    return config
