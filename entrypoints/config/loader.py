"""Loads settings from the configuration files, then the environment; reads API key files."""

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
from attrs import evolve

from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.text import printable
from tileferry.entrypoints.config.conversion import convert_value
from tileferry.entrypoints.config.fields import APP
from tileferry.entrypoints.config.origins import (
    CONFIG_FILE,
    DEFAULT,
    SettingOrigins,
    find_existing_files,
)
from tileferry.entrypoints.config.retry_overrides import (
    build_alert_thresholds,
    build_category_policies,
)
from tileferry.entrypoints.config.sections import C11Config, Config
from tileferry.entrypoints.config.setting_names import (
    explain_invalid_setting,
    explain_misplaced_setting,
    explain_unknown_setting,
    find_unknown_variables,
    is_plain_setting,
    is_table,
    join_path,
    list_setting_paths,
    to_variable_name,
)

Table = TypeVar("Table", bound=attrs.AttrsInstance)
Layer = tuple[Path, Mapping[str, Any]]
"""The content of a table in one file, and the folder of the file."""


def load_config(file: Path | None = None) -> Config:
    """Load and check the configuration; an error names the field.

    The user's file is read first, then ``file``, or without it ``tileferry.toml`` in the working
    directory if it exists. A named file must exist. A ``TILEFERRY_…`` variable that is not a
    setting is an error.
    """
    check_environment()
    if file is not None and not file.exists():
        raise InvalidValueError(field=str(file), value=None, problem="does not exist")
    documents = [(path, _read_file(path)) for path in find_existing_files(file)]
    layers = [(path.parent, document.get(APP, {})) for path, (_, document) in documents]
    try:
        config = _build_table(Config, layers)
    except InvalidValueError as error:
        raise _add_location(error, file) from None  # the original error may quote a secret
    for path, (mode, document) in documents:
        _check_document(path, mode, document)
    # Detect invalid values now, not when the first call fails.
    try:
        build_category_policies(config.retry)
        build_alert_thresholds(config.audit.alert_retries_per_minute, config.retry)
        if config.uses_nats:
            get_nats_url(config)
    except InvalidValueError as error:
        raise _add_location(error, file) from None
    return config


def check_environment() -> None:
    """Raise if a ``TILEFERRY_…`` variable is not a setting: it may be misspelt."""
    for name, meant in find_unknown_variables(os.environ, list_setting_paths(Config)).items():
        raise InvalidValueError(
            field=printable(name),
            value=None,
            problem="is not a setting",
            remedy=Remedy.LIST_SETTINGS if meant is None else f"did you mean {meant}?",
        )


def get_nats_url(config: Config) -> str:
    """Return the address of the NATS server, which may contain credentials."""
    if config.nats.url is None:
        raise InvalidValueError(
            field="nats.url",
            value=None,
            problem="is not set, but audit.sinks or idempotency.store uses NATS",
            remedy=f"set {to_variable_name('nats.url')}, such as nats://127.0.0.1:4222",
        )
    return config.nats.url.get_secret_value()


def _build_table(kind: type[Table], layers: Sequence[Layer], table: str = "") -> Table:
    """Build a table of settings from the files, where later ones win, and the environment."""
    items = attrs.fields(kind)
    known = {item.name for item in items}
    for _, content in layers:
        if not isinstance(content, Mapping):
            raise _reject(table or APP, content, "must be a table of settings")
        for name in content:
            if name not in known:
                raise explain_unknown_setting(join_path(table, name), Config)
    values: dict[str, Any] = {}
    for item in items:
        path = join_path(table, item.name)
        named = [(folder, content[item.name]) for folder, content in layers if item.name in content]
        if is_table(item.type):
            values[item.name] = _build_table(item.type, named, path)
            continue
        said = os.environ.get(to_variable_name(path))
        if said is not None:
            named = [(Path.cwd(), said)]
        if named:
            values[item.name] = _convert(path, item.type, *named[-1])
    try:
        return kind(**values)
    except InvalidValueError as error:
        raise explain_invalid_setting(error, table, Config, kind.__name__) from None


def _convert(path: str, kind: Any, folder: Path, value: Any) -> Any:
    try:
        return convert_value(value, kind, folder)
    except ValueError:
        raise _reject(path, value, "invalid value") from None


def _reject(path: str, value: object, problem: str) -> InvalidValueError:
    shown = value if is_plain_setting(path, Config) else "***"
    return InvalidValueError(field=path, value=shown, problem=problem)


def _add_location(error: InvalidValueError, file: Path | None) -> InvalidValueError:
    """Return the error with the origin of the value."""
    # All areas share one variable, so an area's own path has none.
    origins = SettingOrigins(file)
    found = [origins.find(path) for path in (error.field, error.field.rpartition(".")[0])]
    place = next((origin for origin in found if origin != DEFAULT), str(file or CONFIG_FILE))
    said = f"{error.remedy}; " if error.remedy else ""
    return evolve(error, remedy=f"{said}correct it in {place}")


def _read_file(file: Path) -> tuple[int, dict[str, Any]]:
    """Return the mode and the content of a configuration file."""
    try:
        with file.open("rb") as content:
            return os.fstat(content.fileno()).st_mode, tomllib.load(content)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidValueError(
            field=str(file), value=None, problem=f"cannot be read: {error}"
        ) from error


def _check_document(file: Path, mode: int, document: dict[str, Any]) -> None:
    """Reject tables that are not ours, and secrets that others can read."""
    for name, value in document.items():
        if name != APP:
            raise explain_misplaced_setting(name, value, Config, app=APP, file=str(file))
    for path, elsewhere in _SECRETS.items():
        table, _, name = path.partition(".")
        value = document.get(APP, {}).get(table, {}).get(name)
        if value is not None and (path != "nats.url" or "@" in str(value)):
            _check_private(file, mode, path, elsewhere)


_SECRETS = {
    "c11.service_api_key": "move the key to c11.service_api_key_file",
    "nats.url": f"set {to_variable_name('nats.url')}",
    "audit.alert_webhook_url": f"set {to_variable_name('audit.alert_webhook_url')}",
}
"""Settings that only their owner may read, and where else they can be set. The address of a webhook
is one: anyone who knows it can post to it."""


def _check_private(file: Path, mode: int, path: str, elsewhere: str) -> None:
    """Reject a secret in a configuration file that other users can read."""
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidValueError(
            field=path,
            value="***",
            problem=f"is in {file}, which other users can read (mode {stat.S_IMODE(mode):o})",
            remedy=f"run `chmod 600 {file}`, or {elsewhere}",
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
