"""Loads settings from ``tileferry.toml``, then the environment, and reads API key files."""

import os
import stat
import tomllib
from pathlib import Path
from typing import TypeVar

import typed_settings as ts
from attrs import evolve
from typed_settings.converters import PathConverter, get_default_ts_converter

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config.retry_overrides import (
    build_alert_thresholds,
    build_category_policies,
)
from tileferry.entrypoints.config.sections import APP, C11Config, Config
from tileferry.entrypoints.config.setting_names import (
    ENV_PREFIX,
    explain_invalid_setting,
    explain_misplaced_setting,
    explain_unknown_setting,
    to_variable_name,
)

CONFIG_FILE = "tileferry.toml"
_Path = TypeVar("_Path", bound=Path)


def load_config(file: Path | None = None) -> Config:
    """Load and check the configuration; an error names the field.

    Without ``file``, ``tileferry.toml`` in the working directory is read if it exists. A named file
    must exist.
    """
    if file is not None and not file.exists():
        raise InvalidValueError(field=str(file), value=None, problem="does not exist")
    try:
        config = _load(file or Path(CONFIG_FILE))
    except ts.exceptions.InvalidSettingsError as error:
        wrong = explain_invalid_setting(str(error.exceptions[0]), Config, "")
        raise _add_location(wrong, file) from None  # the original error may quote a secret
    except ts.exceptions.InvalidOptionsError as error:
        # The library's message ends with the paths of all unknown settings.
        raise explain_unknown_setting(
            str(error).rpartition(": ")[2].split(", ")[0], Config
        ) from None
    except (ts.exceptions.TsError, OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            field=str(file or CONFIG_FILE), value=None, problem=f"cannot be read: {error}"
        ) from error
    _check_file(file or Path(CONFIG_FILE))
    # Detect invalid values now, not when the first call fails.
    try:
        build_category_policies(config.retry)
        build_alert_thresholds(config.audit.alert_retries_per_minute, config.retry)
    except InvalidValueError as error:
        raise _add_location(error, file) from None
    return config


class _HomePathConverter(PathConverter):
    """Expands ``~``, because no shell expands it in a file or in a service's environment."""

    def __call__(self, value: Path | str, cls: type[_Path]) -> _Path:
        return super().__call__(cls(value).expanduser(), cls)


def _load(file: Path) -> Config:
    converter = get_default_ts_converter()
    converter.scalar_converters[Path] = _HomePathConverter()
    loaders = ts.default_loaders(
        appname=APP,
        config_files=[file],
        config_files_var=None,  # files named by a variable would bypass our checks
        env_prefix=ENV_PREFIX,
    )
    return ts.load_settings(Config, loaders, converter=converter)


def _add_location(error: InvalidValueError, file: Path | None) -> InvalidValueError:
    """Return the error with the origin of the value; the environment overrides the file."""
    # All areas share one variable, so an area's own path has none.
    variables = [to_variable_name(path) for path in (error.field, error.field.rpartition(".")[0])]
    place = next((name for name in variables if name in os.environ), str(file or CONFIG_FILE))
    said = f"{error.remedy}; " if error.remedy else ""
    return evolve(error, remedy=f"{said}correct it in {place}")


def _check_file(file: Path) -> None:
    """Reject what the library ignores silently; the file is already known to be readable."""
    try:
        with file.open("rb") as content:
            mode = os.fstat(content.fileno()).st_mode
            document = tomllib.load(content)
    except FileNotFoundError:
        return
    # The library reads one table and ignores all others, with every setting in them.
    for name, value in document.items():
        if name != APP:
            raise explain_misplaced_setting(name, value, Config, app=APP, file=str(file))
    if "service_api_key" in document.get(APP, {}).get("c11", {}):
        _check_private(file, mode)


def _check_private(file: Path, mode: int) -> None:
    """Reject an API key in a configuration file that other users can read."""
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidValueError(
            field="c11.service_api_key",
            value="***",
            problem=f"is in {file}, which other users can read (mode {stat.S_IMODE(mode):o})",
            remedy=f"run `chmod 600 {file}`, or move the key to c11.service_api_key_file",
        )


_KEY_BYTES_MAX = 4_096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_service_api_key(config: C11Config) -> str:
    """Return the API key; errors never contain the key."""
    if config.service_api_key_file is not None:
        return read_key_file(config.service_api_key_file, field="c11.service_api_key_file")
    if config.service_api_key is not None:
        return config.service_api_key.get_secret_value()
    raise InvalidValueError(
        field="c11.service_api_key",
        value=None,
        problem="is not set",
        remedy="put the key into a file with mode 0600 and name it in c11.service_api_key_file, "
        "or set TILEFERRY_C11_SERVICE_API_KEY",
    )


def read_key_file(path: Path, *, field: str) -> str:
    """Return the API key stored in a file; ``field`` is the setting that names the file."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_KEY_BYTES_MAX + 1)  # bounded: the path may name an endless device
    except OSError as error:
        raise InvalidValueError(
            field=field, value=str(path), problem=f"cannot be read: {error.strerror}"
        ) from error
    if mode & _OTHERS:
        raise InvalidValueError(
            field=field,
            value=str(path),
            problem=f"can be read by other users (mode {stat.S_IMODE(mode):o})",
            remedy=f"run `chmod 600 {path}`",
        )
    try:
        key = content.decode("ascii").strip()
    except UnicodeDecodeError:
        key = ""
    if key and len(content) <= _KEY_BYTES_MAX:
        return key
    if not content.strip():
        raise InvalidValueError(
            field=field, value=str(path), problem="is empty", remedy=f"write the key into {path}"
        )
    raise InvalidValueError(field=field, value=str(path), problem="does not contain an API key")
